#include "services/reward/reward_worker.h"

#include <algorithm>
#include <memory>
#include <thread>
#include <utility>

#include "absl/status/statusor.h"
#include "services/base/clock.h"
#include "services/base/log.h"
#include "services/base/mutex.h"
#include "services/base/str_cat.h"

namespace freshet {
namespace {

// After Close() the store's waits return at once; this bounds the rate of the loop until the stop.
constexpr absl::Duration kIdlePause = absl::Milliseconds(1);
// Rows of a first batch, before it is known how long they take.
constexpr int64_t kFirstBatchRows = 8;

}  // namespace

RewardWorker::RewardWorker(TrajectoryStore& store, const CompositeScorer& scorer,
                           ResponseDecoder decoder, RewardWorkerOptions options)
    : store_(store), scorer_(scorer), decoder_(std::move(decoder)), options_(std::move(options)) {}

std::optional<Score> RewardWorker::ScoreRow(const RowLease& row) {
  const SampleView& sample = row.sample;
  const std::string completion = decoder_(sample.response->response_ids);
  const ScoreInput input{completion,
                         static_cast<int32_t>(sample.response->response_ids.size()),
                         sample.response->finish == FinishReason::kStop,
                         sample.prompt->attributes,
                         options_.score_timeout,
                         sample.response->env_reward};
  absl::StatusOr<Score> score = scorer_.Score(input);
  if (score.ok()) return *std::move(score);
  const bool timeout = score.status().code() == absl::StatusCode::kDeadlineExceeded;
  const std::string reason =
      StrCat(timeout ? "timeout: " : "infra_error: ", Message(score.status()));
  FRESHET_LOG(Warning) << "sample=" << sample.uid << " " << reason;
  const absl::Status failed = store_.FailRow(Task::kScore, row.token, reason);
  if (!failed.ok()) {
    ++lost_;
    FRESHET_LOG(Warning) << "sample=" << sample.uid << " fail_row=" << Message(failed);
  } else {
    ++(timeout ? timeouts_ : infra_errors_);
  }
  return std::nullopt;
}

int64_t RewardWorker::PutScores(const std::vector<RowPut>& scores) {
  if (scores.empty()) return 0;
  const absl::StatusOr<std::vector<absl::Status>> statuses = store_.PutRows(Task::kScore, scores);
  if (!statuses.ok()) {
    lost_ += static_cast<int64_t>(scores.size());
    FRESHET_LOG(Warning) << "worker=" << options_.worker << " rows=" << scores.size()
                         << " put_rows=" << Message(statuses.status());
    return 0;
  }
  int64_t accepted = 0;
  for (size_t i = 0; i < scores.size(); ++i) {
    if (!(*statuses)[i].ok()) {
      ++lost_;
      FRESHET_LOG(Warning) << "worker=" << options_.worker
                           << " put_rows=" << Message((*statuses)[i]);
      continue;
    }
    ++accepted;
    ++(scores[i].values.score->outcome == ScoreOutcome::kWrongFormat ? wrong_format_ : ok_);
  }
  return accepted;
}

RewardWorker::Batch RewardWorker::ProcessBatch(int64_t max_rows) {
  absl::StatusOr<std::vector<RowLease>> rows =
      store_.LeaseRows(Task::kScore, options_.worker, max_rows);
  if (!rows.ok()) {
    ++store_errors_;
    if (!store_down_.exchange(true)) {
      FRESHET_LOG(Warning) << "worker=" << options_.worker
                           << " lease_rows=" << Message(rows.status());
    }
    return {};
  }
  store_down_ = false;
  Batch batch;
  batch.leased = static_cast<int64_t>(rows->size());
  const Clock& clock = SystemClock::Get();
  absl::Time put_at = clock.Now() + options_.put_period;
  std::vector<RowPut> scores;
  for (const RowLease& row : *rows) {
    std::optional<Score> score = ScoreRow(row);
    if (score.has_value()) {
      scores.push_back({row.token, {std::make_shared<const Score>(*std::move(score)), nullptr}});
    }
    if (clock.Now() < put_at) continue;
    batch.scored += PutScores(std::exchange(scores, {}));
    put_at = clock.Now() + options_.put_period;
  }
  batch.scored += PutScores(scores);
  return batch;
}

int64_t RewardWorker::RunOnce() { return ProcessBatch(options_.batch_rows).scored; }

void RewardWorker::Run(std::stop_token stop) {
  std::vector<std::jthread> others;
  for (int64_t i = 1; i < options_.parallel; ++i) {
    others.emplace_back([this, stop] { Loop(stop); });
  }
  Loop(stop);
}

void RewardWorker::Loop(std::stop_token stop) {
  Notification stopped;
  const std::stop_callback on_stop(stop, [&stopped] { stopped.Notify(); });
  const Clock& clock = SystemClock::Get();
  int64_t max_rows = std::min<int64_t>(options_.batch_rows, kFirstBatchRows);
  while (!stop.stop_requested()) {
    uint64_t seen = store_.ChangeCount(Topic::kRows);
    const absl::Time start = clock.Now();
    const Batch batch = ProcessBatch(max_rows);
    const bool more = batch.scored > 0 && batch.leased == max_rows;
    if (batch.leased > 0) max_rows = NextBatchRows(max_rows, batch.leased, clock.Now() - start);
    if (more) continue;
    // Rows that all failed are free again at once, which is a change of its own: do not spin on it.
    if (batch.leased > 0 && batch.scored == 0) seen = store_.ChangeCount(Topic::kRows);
    if (store_.AwaitChange(Topic::kRows, seen, options_.max_wait) == seen) {
      stopped.WaitFor(kIdlePause);
    }
    const absl::Duration early = start + options_.lease_period - clock.Now();
    if (early > absl::ZeroDuration()) stopped.WaitFor(early);
  }
}

// As many rows as batch_time suffices for at the last batch's pace; twice as many at most.
int64_t RewardWorker::NextBatchRows(int64_t max_rows, int64_t rows, absl::Duration took) const {
  const double seconds_per_row =
      std::max(absl::ToDoubleSeconds(took), 1e-9) / static_cast<double>(rows);
  const double affordable = absl::ToDoubleSeconds(options_.batch_time) / seconds_per_row;
  const double most = static_cast<double>(std::min(options_.batch_rows, 2 * max_rows));
  return static_cast<int64_t>(std::clamp(affordable, 1.0, most));
}

RewardCounters RewardWorker::counters() const {
  RewardCounters counters;
  counters.ok = ok_.load();
  counters.wrong_format = wrong_format_.load();
  counters.timeouts = timeouts_.load();
  counters.infra_errors = infra_errors_.load();
  counters.lost = lost_.load();
  counters.store_errors = store_errors_.load();
  return counters;
}

}  // namespace freshet
