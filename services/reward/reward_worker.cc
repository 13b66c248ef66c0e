#include "services/reward/reward_worker.h"

#include <algorithm>
#include <memory>
#include <thread>
#include <utility>

#include "absl/status/statusor.h"
#include "services/base/log.h"
#include "services/base/str_cat.h"
#include "services/base/trace.h"

namespace freshet {
namespace {

// After Close() the store's waits return at once; this bounds the rate of the loop until the stop.
constexpr absl::Duration kIdlePause = absl::Milliseconds(1);
// Rows in hand beyond which none is leased: the store does not take their scores for now.
constexpr int64_t kMaxInHand = 4096;

}  // namespace

RewardWorker::RewardWorker(TrajectoryStore& store, const CompositeScorer& scorer,
                           ResponseDecoder decoder, RewardWorkerOptions options, const Clock& clock)
    : store_(store),
      scorer_(scorer),
      decoder_(std::move(decoder)),
      options_(std::move(options)),
      clock_(clock) {}

int64_t RewardWorker::RunOnce() {
  const int64_t before = counters().scored();
  LeaseRows(options_.batch_rows);
  while (true) {
    std::optional<HeldRow> held;
    {
      MutexLock lock(mu_);
      if (PutDue()) {
        putting_ = true;
      } else if (!queue_.empty()) {
        held = PopQueued();
      } else {
        break;
      }
    }
    if (!held.has_value()) {
      PutDone();
      continue;
    }
    Process(*held);
    RenewWhenDue();
  }
  return counters().scored() - before;
}

void RewardWorker::Run(std::stop_token stop) {
  {
    MutexLock lock(mu_);
    stopping_ = false;
  }
  Turn turn;
  turn.stop = stop;
  const std::stop_callback on_stop(stop, [this, &turn] {
    turn.stopped.Notify();
    GiveUpAll();
  });
  const std::jthread keeper([this, &turn] { Keep(turn); });
  std::vector<std::jthread> others;
  for (int64_t i = 1; i < options_.parallel; ++i) {
    others.emplace_back([this, &turn] { Loop(turn); });
  }
  Loop(turn);
}

// Looks after the rows in hand while all other threads may be busy for long.
void RewardWorker::Keep(Turn& turn) {
  const LogScope scope(store_.options().job);
  while (!turn.stop.stop_requested()) {
    bool put = false;
    {
      MutexLock lock(mu_);
      put = PutDue();
      if (put) {
        putting_ = true;
      } else {
        absl::Duration wait = options_.renewal_check;
        if (!done_.empty() && !putting_) wait = std::min(wait, put_at_ - clock_.Now());
        keep_.WaitFor(mu_, std::max(wait, kIdlePause));
      }
    }
    if (put) PutDone();
    RenewWhenDue();
  }
}

void RewardWorker::Loop(Turn& turn) {
  const LogScope scope(store_.options().job);
  while (const std::optional<HeldRow> held = Next(turn)) Process(*held);
}

std::optional<RewardWorker::HeldRow> RewardWorker::Next(Turn& turn) {
  while (true) {
    bool put = false;
    {
      MutexLock lock(mu_);
      put = PutDue();
      if (put) {
        putting_ = true;
      } else if (!queue_.empty()) {
        return PopQueued();
      } else if (turn.stop.stop_requested()) {
        return std::nullopt;
      } else if (leasing_) {
        work_.WaitFor(mu_, options_.look_again);
        continue;
      } else {
        leasing_ = true;
      }
    }
    if (put) {
      PutDone();
    } else {
      LeaseMore(turn);
    }
  }
}

RewardWorker::HeldRow RewardWorker::PopQueued() {
  HeldRow held{std::move(queue_.front()), {}};
  queue_.pop_front();
  held.cancel = in_hand_.at(held.row.token).get_token();
  ++scoring_;
  return held;
}

void RewardWorker::Process(const HeldRow& held) {
  const absl::Time start = clock_.Now();
  std::optional<Score> score = ScoreRow(held);
  const absl::Time now = clock_.Now();
  MutexLock lock(mu_);
  --scoring_;
  // Rises at once with a slow row, and falls slowly.
  row_time_ = std::max(now - start, 0.9 * row_time_ + 0.1 * (now - start));
  measured_ = true;
  only_failures_ = !score.has_value();
  if (!score.has_value()) {
    in_hand_.erase(held.row.token);
    return;
  }
  if (done_.empty()) {
    put_at_ = now + options_.put_period;
    keep_.NotifyAll();
  }
  done_.push_back({held.row.token, {std::make_shared<const Score>(*std::move(score)), nullptr}});
}

std::optional<Score> RewardWorker::ScoreRow(const HeldRow& held) {
  const SampleView& sample = held.row.sample;
  const std::string completion = decoder_(sample.response->response_ids);
  const ScoreInput input{completion,
                         static_cast<int32_t>(sample.response->response_ids.size()),
                         sample.response->finish == FinishReason::kStop,
                         sample.prompt->attributes,
                         options_.score_timeout,
                         sample.response->env_reward,
                         held.cancel,
                         sample.uid,
                         options_.trace_ratio};
  absl::StatusOr<Score> score = scorer_.Score(input);
  if (score.ok()) {
    if (IsTraced(sample.uid, options_.trace_ratio)) {
      FRESHET_LOG(Info) << "event=sample_scored " << TraceWords(sample.uid)
                        << " reward=" << score->reward;
    }
    return *std::move(score);
  }
  if (score.status().code() == absl::StatusCode::kCancelled && held.cancel.stop_requested()) {
    ++lost_;
    return std::nullopt;
  }
  const bool timeout = score.status().code() == absl::StatusCode::kDeadlineExceeded;
  const std::string reason =
      StrCat(timeout ? "timeout: " : "infra_error: ", Message(score.status()));
  FRESHET_LOG(Warning) << "event=score_failed " << TraceWords(sample.uid)
                       << " reason=" << LogQuoted(reason);
  const absl::Status failed = store_.FailRow(Task::kScore, held.row.token, reason);
  if (!failed.ok()) {
    ++lost_;
    FRESHET_LOG(Warning) << "event=fail_row_refused " << TraceWords(sample.uid)
                         << " reason=" << LogQuoted(Message(failed));
  } else {
    ++(timeout ? timeouts_ : infra_errors_);
  }
  return std::nullopt;
}

void RewardWorker::LeaseMore(Turn& turn) {
  if (AwaitRows(turn)) {
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
  // Without rows this thread is the next one to lease.
  if (!queue_.empty() || PutDue()) work_.NotifyAll();
}

// True when it is time to lease; false, after a while, when it is not yet.
bool RewardWorker::AwaitRows(Turn& turn) {
  absl::Duration pause = next_lease_ - clock_.Now();
  const absl::Duration wait = options_.max_wait;
  bool full = false;
  {
    MutexLock lock(mu_);
    full = static_cast<int64_t>(in_hand_.size()) >= kMaxInHand;
    // Rows that failed are free again at once, which is a change of its own: do not spin on it.
    if (std::exchange(only_failures_, false)) pause = std::max(pause, wait);
  }
  if (full) pause = absl::InfiniteDuration();
  if (pause > absl::ZeroDuration()) {
    turn.stopped.WaitFor(std::min(pause, wait));
    if (pause > wait) return false;
  }
  if (turn.stop.stop_requested()) return false;
  if (!await_rows_ || clock_.Now() >= look_again_) return true;
  if (store_.AwaitChange(Topic::kRows, rows_seen_, wait) != rows_seen_) return true;
  turn.stopped.WaitFor(kIdlePause);
  return false;
}

int64_t RewardWorker::LeaseRows(int64_t max_rows) {
  const absl::Time now = clock_.Now();
  absl::StatusOr<std::vector<RowLease>> rows =
      store_.LeaseRows(Task::kScore, options_.worker, max_rows);
  if (!rows.ok()) {
    ++store_errors_;
    if (absl::IsFailedPrecondition(rows.status())) fenced_ = true;
    if (!std::exchange(store_down_, true)) {
      FRESHET_LOG(Warning) << "event=lease_rows_failed error=" << LogQuoted(Message(rows.status()));
    }
    return 0;
  }
  store_down_ = false;
  const auto count = static_cast<int64_t>(rows->size());
  MutexLock lock(mu_);
  if (in_hand_.empty()) next_renewal_ = now + store_.options().lease_ttl / 3;
  for (RowLease& row : *rows) {
    std::stop_source& cancel = in_hand_[row.token];
    if (stopping_) cancel.request_stop();
    queue_.push_back(std::move(row));
  }
  return count;
}

// Rows for every idle thread, and as many ahead as batch_time suffices for.
int64_t RewardWorker::Room() {
  if (std::exchange(measured_, false)) {
    const double affordable = row_time_ <= absl::ZeroDuration()
                                  ? static_cast<double>(options_.batch_rows)
                                  : absl::FDivDuration(options_.batch_time, row_time_);
    const int64_t most = std::max<int64_t>(std::min(options_.batch_rows, 2 * ahead_), 1);
    ahead_ = static_cast<int64_t>(std::clamp(affordable, 1.0, static_cast<double>(most)));
  }
  const int64_t wanted =
      std::min(std::max(options_.batch_rows, options_.parallel), options_.parallel * ahead_);
  return std::max<int64_t>(wanted - scoring_ - static_cast<int64_t>(queue_.size()), 1);
}

bool RewardWorker::PutDue() const {
  if (putting_ || done_.empty()) return false;
  return (queue_.empty() && scoring_ == 0) || clock_.Now() >= put_at_;
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
    PutScores(scores);
    MutexLock lock(mu_);
    for (const RowPut& score : scores) in_hand_.erase(score.token);
  }
}

void RewardWorker::PutScores(const std::vector<RowPut>& scores) {
  const absl::StatusOr<std::vector<absl::Status>> statuses = store_.PutRows(Task::kScore, scores);
  if (!statuses.ok()) {
    lost_ += static_cast<int64_t>(scores.size());
    FRESHET_LOG(Warning) << "event=put_rows_failed rows=" << scores.size()
                         << " error=" << LogQuoted(Message(statuses.status()));
    return;
  }
  for (size_t i = 0; i < scores.size(); ++i) {
    if (!(*statuses)[i].ok()) {
      ++lost_;
      FRESHET_LOG(Warning) << "event=row_refused error=" << LogQuoted(Message((*statuses)[i]));
      continue;
    }
    ++(scores[i].values.score->outcome == ScoreOutcome::kWrongFormat ? wrong_format_ : ok_);
  }
}

void RewardWorker::RenewWhenDue() {
  const absl::Time now = clock_.Now();
  std::vector<int64_t> lost;
  {
    MutexLock lock(mu_);
    if (in_hand_.empty() || now < next_renewal_) return;
    for (const auto& [token, cancel] : in_hand_) lost.push_back(token);
  }
  const absl::StatusOr<std::vector<int64_t>> refused = store_.RenewLeases(options_.worker, lost);
  // The name is revoked, and with it all leases. Any other error: the next check tries again.
  if (refused.status().code() != absl::StatusCode::kFailedPrecondition) {
    if (!refused.ok()) {
      FRESHET_LOG(Warning) << "event=renew_leases_failed error="
                           << LogQuoted(Message(refused.status()));
      return;
    }
    lost = *refused;
  }
  std::vector<std::stop_source> ended;
  {
    MutexLock lock(mu_);
    next_renewal_ = now + store_.options().lease_ttl / 3;
    for (const int64_t token : lost) {
      const auto found = in_hand_.find(token);
      if (found != in_hand_.end()) ended.push_back(found->second);
    }
  }
  for (std::stop_source& cancel : ended) cancel.request_stop();
}

void RewardWorker::GiveUpAll() {
  std::vector<std::stop_source> all;
  {
    MutexLock lock(mu_);
    stopping_ = true;
    for (const auto& [token, cancel] : in_hand_) all.push_back(cancel);
    work_.NotifyAll();
    keep_.NotifyAll();
  }
  for (std::stop_source& cancel : all) cancel.request_stop();
}

RewardCounters RewardWorker::counters() const {
  RewardCounters counters;
  counters.ok = ok_.load();
  counters.wrong_format = wrong_format_.load();
  counters.timeouts = timeouts_.load();
  counters.infra_errors = infra_errors_.load();
  counters.lost = lost_.load();
  counters.store_errors = store_errors_.load();
  counters.fenced = fenced_.load();
  return counters;
}

}  // namespace freshet
