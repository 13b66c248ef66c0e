#include "services/reward/worker/reward_worker.h"

#include <algorithm>
#include <memory>
#include <thread>
#include <utility>

#include "absl/status/statusor.h"
#include "base/backoff.h"
#include "base/log.h"
#include "base/str_cat.h"
#include "base/trace.h"
#include "base/transient.h"

namespace freshet {
namespace {

// After Close() the store's waits return at once; this bounds the loop's rate until the stop.
constexpr absl::Duration kIdlePause = absl::Milliseconds(1);
// Bounded, because rows that another worker took over are never removed.
constexpr size_t kMaxSuspects = 1024;

}  // namespace

RewardWorker::RewardWorker(RowQueue& store, const CompositeScorer& scorer, ResponseDecoder decoder,
                           RewardWorkerOptions options, const Clock& clock)
    : store_(store),
      scorer_(scorer),
      decoder_(std::move(decoder)),
      options_(std::move(options)),
      clock_(clock),
      leases_(store, options_.worker, clock),
      scorer_away_("scorer", options_.first_retry, options_.longest_retry),
      store_away_("store", options_.first_retry, options_.longest_retry),
      ahead_(options_.batch_time, options_.batch_rows) {}

int64_t RewardWorker::RunOnce() {
  const int64_t before = counters().scored();
  LeaseRows(options_.batch_rows);
  while (true) {
    PutWhenDue();
    std::optional<HeldRow> held;
    {
      MutexLock lock(mu_);
      if (queue_.empty()) break;
      held = PopQueued();
    }
    Process(*held);
    leases_.RenewWhenDue();
  }
  return counters().scored() - before;
}

void RewardWorker::Run(std::stop_token stop) {
  const LogScope scope(options_.job);
  {
    MutexLock lock(mu_);
    stopping_ = false;
  }
  const std::stop_callback on_stop(stop, [this] { Stop(); });
  {
    std::vector<std::jthread> others;
    others.emplace_back([this] { RenewLoop(); });
    for (int64_t i = 1; i < options_.parallel; ++i) others.emplace_back([this] { ScoreLoop(); });
    ScoreLoop();
  }
  PutRest();
}

void RewardWorker::RenewLoop() {
  const LogScope scope(options_.job);
  while (true) {
    PutWhenDue();
    leases_.RenewWhenDue();
    MutexLock lock(mu_);
    if (stopping_) return;
    absl::Duration wait = options_.renewal_check;
    if (!done_.empty() && !putting_) wait = std::min(wait, put_at_ - clock_.Now());
    renewal_cv_.WaitFor(mu_, std::max(wait, kIdlePause));
  }
}

void RewardWorker::ScoreLoop() {
  const LogScope scope(options_.job);
  while (const std::optional<HeldRow> held = Next()) Process(*held);
}

std::optional<RewardWorker::HeldRow> RewardWorker::Next() {
  while (true) {
    PutWhenDue();
    {
      MutexLock lock(mu_);
      if (!queue_.empty()) return PopQueued();
      if (stopping_) return std::nullopt;
      if (leasing_) {
        work_.WaitFor(mu_, options_.look_again);
        continue;
      }
      leasing_ = true;
    }
    LeaseMore();
  }
}

RewardWorker::HeldRow RewardWorker::PopQueued() {
  HeldRow held;
  held.row = std::move(queue_.front());
  queue_.pop_front();
  held.cancel = leases_.CancelToken(held.row.token);
  held.number = ++begun_;
  held.alone = scoring_++ == 0;
  return held;
}

void RewardWorker::Process(const HeldRow& held) {
  const absl::Time start = clock_.Now();
  std::optional<Score> score = ScoreRow(held, start);
  const absl::Time now = clock_.Now();
  MutexLock lock(mu_);
  --scoring_;
  ahead_.OnRow(now - start);
  only_failures_ = !score.has_value();
  if (!score.has_value()) {
    leases_.Remove(held.row.token);
    return;
  }
  if (done_.empty()) {
    put_at_ = now + options_.put_period;
    renewal_cv_.NotifyAll();
  }
  done_.push_back({held.row.token, {std::make_shared<const Score>(*std::move(score))}});
}

std::optional<Score> RewardWorker::ScoreRow(const HeldRow& held, absl::Time start) {
  const SampleView& sample = held.row.sample;
  const std::vector<int32_t>& ids = CompletionIds(*sample.response);
  const std::string completion = decoder_(ids);
  std::vector<std::string> group;
  for (const auto& response : held.row.group) group.push_back(decoder_(CompletionIds(*response)));
  const ScoreInput input{completion,
                         static_cast<int32_t>(ids.size()),
                         sample.response->finish == FinishReason::kStop ||
                             sample.response->finish == FinishReason::kNotAsked,
                         sample.prompt->attributes,
                         options_.score_timeout,
                         sample.response->env_reward,
                         held.cancel,
                         sample.uid,
                         options_.trace_ratio,
                         sample.response->step_rewards,
                         group,
                         sample.key.index,
                         {options_.calls}};
  absl::StatusOr<Score> score = scorer_.Score(input);
  if (score.status().code() == absl::StatusCode::kCancelled && held.cancel.stop_requested()) {
    Count(&RewardCounters::lost);
    return std::nullopt;
  }
  const bool broke = absl::IsAborted(score.status());
  bool away = broke || absl::IsUnavailable(score.status());
  {
    MutexLock lock(mu_);
    if (away) {
      scorer_away_.OnFailure(score.status(), start, clock_.Now());
    } else {
      scorer_away_.OnSuccess();
      suspects_.erase(sample.uid);
    }
    if (broke && IsSuspect(held)) away = false;
  }
  if (score.ok()) {
    if (IsTraced(sample.uid, options_.trace_ratio)) {
      FRESHET_LOG(Info) << "event=sample_scored " << TraceWords(sample.uid)
                        << " reward=" << score->reward;
    }
    return *std::move(score);
  }
  HandBack(held.row, score.status(), away);
  return std::nullopt;
}

// If a scorer dies, every row that it has fails, and only a row that was scored alone can be the
// cause. A planned restart looks the same, so only the second time counts. While the scorer is
// unavailable, one row is tried at a time, so that the cause is eventually scored alone.
bool RewardWorker::IsSuspect(const HeldRow& held) {
  if (!held.alone || held.number != begun_) return false;
  const std::string& uid = held.row.sample.uid;
  if (suspects_.erase(uid) > 0) return true;
  if (suspects_.size() >= kMaxSuspects) suspects_.clear();
  suspects_.insert(uid);
  return false;
}

void RewardWorker::HandBack(const RowLease& row, const absl::Status& error, bool away) {
  const bool timeout = absl::IsDeadlineExceeded(error);
  const std::string reason = StrCat(timeout ? "timeout: " : "infra_error: ", Message(error));
  if (!away) {
    FRESHET_LOG(Warning) << "event=score_failed " << TraceWords(row.sample.uid)
                         << " reason=" << LogQuoted(reason);
  }
  const RowEnd end = away ? RowEnd::kReturned : RowEnd::kFailed;
  absl::Status ended;
  for (int64_t failures = 1;; ++failures) {
    ended = store_.EndRow(Task::kScore, row.token, end, away ? "" : reason);
    if (!IsTransientStoreError(ended)) break;
    MutexLock lock(mu_);
    if (stopping_) break;
    work_.WaitFor(mu_, BackoffDelay(failures, options_.first_retry, options_.longest_retry));
  }
  if (!ended.ok()) {
    Count(&RewardCounters::lost);
    FRESHET_LOG(Warning) << "event=end_row_refused " << TraceWords(row.sample.uid)
                         << " reason=" << LogQuoted(Message(ended));
  } else {
    Count(away      ? &RewardCounters::returned
          : timeout ? &RewardCounters::timeouts
                    : &RewardCounters::infra_errors);
  }
}

void RewardWorker::LeaseMore() {
  if (AwaitRows()) {
    int64_t room = 0;
    {
      MutexLock lock(mu_);
      room = Room();
    }
    const absl::Time now = clock_.Now();
    rows_seen_ = store_.ChangeCount(Topic::kRows);
    await_rows_ = LeaseRows(room) < room;
    next_lease_ = await_rows_ ? now + options_.lease_period : now;
    look_again_ = now + options_.look_again;
  }
  MutexLock lock(mu_);
  leasing_ = false;
  // Without rows, this thread leases next.
  if (!queue_.empty() || PutDue()) work_.NotifyAll();
}

// Returns true if it is time to lease; otherwise false, after a pause.
bool RewardWorker::AwaitRows() {
  const absl::Duration wait = options_.max_wait;
  {
    MutexLock lock(mu_);
    absl::Duration pause = next_lease_ - clock_.Now();
    bool blocked = leases_.size() >= options_.max_in_hand;
    if (scorer_away_.on()) {
      pause = std::max(pause, scorer_away_.retry_at() - clock_.Now());
      blocked = blocked || scoring_ > 0;  // try one row at a time
    }
    // Rows that failed are available again at once, which counts as a change: do not spin on it.
    if (std::exchange(only_failures_, false)) pause = std::max(pause, wait);
    if (blocked) pause = absl::InfiniteDuration();
    if (pause > absl::ZeroDuration() && !stopping_) work_.WaitFor(mu_, std::min(pause, wait));
    if (pause > wait || stopping_) return false;
  }
  if (!await_rows_ || clock_.Now() >= look_again_) return true;
  if (store_.AwaitChange(Topic::kRows, rows_seen_, wait) != rows_seen_) return true;
  MutexLock lock(mu_);
  if (!stopping_) work_.WaitFor(mu_, kIdlePause);
  return false;
}

int64_t RewardWorker::LeaseRows(int64_t max_rows) {
  const absl::Time now = clock_.Now();
  // Reuse the id until a call succeeds, so that a lost reply strands no rows.
  absl::StatusOr<std::vector<RowLease>> rows = store_.LeaseRowsFor(
      {Task::kScore, options_.worker, StrCat(options_.request_prefix, requests_), max_rows});
  if (!rows.ok()) {
    {
      MutexLock lock(mu_);
      ++counters_.store_errors;
      if (absl::IsFailedPrecondition(rows.status())) counters_.fenced = true;
    }
    // Repeating this request would renew the leases of unreadable rows.
    if (absl::IsInternal(rows.status()) || absl::IsDataLoss(rows.status())) ++requests_;
    if (!std::exchange(store_down_, true)) {
      FRESHET_LOG(Warning) << "event=lease_rows_failed error=" << LogQuoted(Message(rows.status()));
    }
    return 0;
  }
  store_down_ = false;
  ++requests_;
  const auto count = static_cast<int64_t>(rows->size());
  MutexLock lock(mu_);
  for (RowLease& row : *rows) {
    leases_.Add(row.token, now, stopping_);
    queue_.push_back(std::move(row));
  }
  return count;
}

// One row per idle thread, plus what fits into batch_time.
int64_t RewardWorker::Room() {
  if (scorer_away_.on()) return 1;
  const int64_t wanted = std::min(std::max(options_.batch_rows, options_.parallel),
                                  options_.parallel * ahead_.RowsPerThread());
  return std::clamp<int64_t>(wanted - scoring_ - std::ssize(queue_), 1,
                             std::max<int64_t>(options_.max_in_hand - leases_.size(), 1));
}

bool RewardWorker::PutDue() const {
  if (putting_ || done_.empty()) return false;
  const bool more_to_come = !queue_.empty() || scoring_ > 0 || store_away_.on();
  return !more_to_come || clock_.Now() >= put_at_;
}

void RewardWorker::PutWhenDue() {
  {
    MutexLock lock(mu_);
    if (!PutDue()) return;
    putting_ = true;
  }
  PutDone();
}

void RewardWorker::PutDone() {
  while (true) {
    std::vector<RowPut> scores;
    {
      MutexLock lock(mu_);
      if (done_.empty()) {
        putting_ = false;
        return;
      }
      scores = std::exchange(done_, {});
    }
    const absl::Time start = clock_.Now();
    const absl::Status put = PutScores(scores);
    MutexLock lock(mu_);
    if (!put.ok()) {
      store_away_.OnFailure(put, start, clock_.Now());
      put_at_ = store_away_.retry_at();
      done_.insert(done_.begin(), scores.begin(), scores.end());
      putting_ = false;
      return;
    }
    store_away_.OnSuccess();
    for (const RowPut& score : scores) leases_.Remove(score.token);
  }
}

void RewardWorker::PutRest() {
  PutDone();
  MutexLock lock(mu_);
  if (done_.empty()) return;
  FRESHET_LOG(Warning) << "event=scores_not_sent count=" << done_.size()
                       << " error=" << LogQuoted(store_away_.reason());
  counters_.lost += std::ssize(done_);
  for (const RowPut& score : done_) leases_.Remove(score.token);
  done_.clear();
}

absl::Status RewardWorker::PutScores(const std::vector<RowPut>& scores) {
  const absl::StatusOr<std::vector<absl::Status>> statuses = store_.PutRows(Task::kScore, scores);
  const absl::Status& status = statuses.status();
  if (!status.ok()) {
    const bool permanent = absl::IsFailedPrecondition(status) || absl::IsInvalidArgument(status) ||
                           absl::IsNotFound(status);
    if (!permanent) return status;
    Count(&RewardCounters::lost, std::ssize(scores));
    FRESHET_LOG(Warning) << "event=put_rows_failed rows=" << scores.size()
                         << " error=" << LogQuoted(Message(status));
    return absl::OkStatus();
  }
  for (size_t i = 0; i < scores.size(); ++i) {
    if (!(*statuses)[i].ok()) {
      Count(&RewardCounters::lost);
      FRESHET_LOG(Warning) << "event=row_refused error=" << LogQuoted(Message((*statuses)[i]));
      continue;
    }
    const bool wrong = scores[i].values.score->outcome == ScoreOutcome::kWrongFormat;
    Count(wrong ? &RewardCounters::wrong_format : &RewardCounters::ok);
  }
  return absl::OkStatus();
}

void RewardWorker::Stop() {
  {
    MutexLock lock(mu_);
    stopping_ = true;
    work_.NotifyAll();
    renewal_cv_.NotifyAll();
  }
  leases_.CancelAll();
}

RewardCounters RewardWorker::counters() const {
  MutexLock lock(mu_);
  RewardCounters counters = counters_;
  counters.unsent = leases_.size() - std::ssize(queue_) - scoring_;
  return counters;
}

std::string RewardWorker::WaitsFor() const {
  const absl::Time now = clock_.Now();
  MutexLock lock(mu_);
  if (scorer_away_.on()) return StrCat("rows wait for their scorer ", scorer_away_.Describe(now));
  if (store_away_.on()) return StrCat("scores wait for the datastore ", store_away_.Describe(now));
  return "";
}

}  // namespace freshet
