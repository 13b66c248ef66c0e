#include "rollout/worker/rollout_worker.h"

#include <iterator>
#include <utility>

#include "base/backoff.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "base/str_cat.h"
#include "base/trace.h"
#include "base/transient.h"
#include "rollout/engine/engine_call.h"

namespace freshet {
namespace {

// This many consecutive samples rejected by the store indicate a bug of the worker.
constexpr int kMaxRefusedSamples = 16;

}  // namespace

RolloutWorker::RolloutWorker(TrajectoryStore& store, InferenceEngine& engine,
                             std::shared_ptr<WeightSubscriber> weights, const Clock& clock,
                             RolloutOptions options, Episodes* episodes, GenerationQueue* queue)
    : store_(store),
      engine_(engine),
      weights_(std::move(weights)),
      clock_(clock),
      options_(std::move(options)),
      episodes_(episodes),
      queue_(queue),
      worker_(options_.worker),
      // Two looks, the most before the first renewal, take as long as the worker's own period.
      renewer_(store, options_.lease_ttl / 6, options_.longest_call) {}

absl::Status RolloutWorker::Run(std::stop_token stop) {
  {
    MutexLock lock(mu_);
    ended_ = false;
  }
  next_renewal_ = clock_.Now() + options_.lease_ttl / 3;
  if (queue_ != nullptr) queue_->Open();
  absl::Status status;
  while (status.ok() && !stop.stop_requested()) status = Turn();
  ReturnAll();
  if (!StoreAwaited()) CountGeneration().IgnoreError();
  {
    MutexLock lock(mu_);
    ended_ = true;
  }
  while (EvaluationBusy()) FinishEvaluation("the rollout worker stops");
  if (queue_ != nullptr) EndRequests();
  return status;
}

void RolloutWorker::EndRequests() {
  while (queue_->InDrainGrace()) {
    queue_->BeforePoll();
    if (engine_.Idle()) {
      queue_->Await(options_.idle_wait);
      continue;
    }
    absl::StatusOr<std::vector<GenerationOutput>> polled =
        CallEngine([this] { return engine_.Poll(); });
    polled.ok() ? queue_->AfterPoll(*polled) : queue_->EngineFailed(polled.status());
  }
  queue_->Close("the rollout stops");
}

void RolloutWorker::PauseEngineUntil(absl::Time end) {
  engine_paused_until_ns_.store(absl::ToUnixNanos(end));
}

bool RolloutWorker::EnginePaused() const {
  return absl::ToUnixNanos(clock_.Now()) < engine_paused_until_ns_.load();
}

absl::Status RolloutWorker::Turn() {
  TakeName();
  FRESHET_RETURN_IF_ERROR(SwapWeights());
  FRESHET_RETURN_IF_ERROR(SendWhenDue());
  FRESHET_RETURN_IF_ERROR(CountWhenDue());
  FRESHET_RETURN_IF_ERROR(RenewLeases());
  if (queue_ != nullptr) queue_->BeforePoll();
  FRESHET_RETURN_IF_ERROR(AdvanceEvaluation());
  const bool paused = EnginePaused();
  if (!paused) FRESHET_RETURN_IF_ERROR(LeaseMore());
  if (!PausedByFailure()) evaluation_yields_ = false;
  const bool full = paused || static_cast<int64_t>(unsent_.size()) >= options_.max_unsent_samples;
  std::vector<GenerationOutput> outputs;
  const bool idle = engine_.Idle();
  if (!idle && !full) {
    absl::StatusOr<std::vector<GenerationOutput>> polled = CallEngine([this] {
      return renewer_.During(worker_, LeaseTokens(), [this] { return engine_.Poll(); });
    });
    if (polled.ok()) {
      outputs = *std::move(polled);
      bool finished = false;
      absl::Status failed;  // INTERNAL of a queued request: the engine's fault, not its client's
      for (const GenerationOutput& output : outputs) {
        finished = finished || output.error.ok();
        const bool queued = output.request_id >= kFirstQueuedRequest;
        if (queued && absl::IsInternal(output.error)) failed = output.error;
      }
      if (queue_ != nullptr) queue_->AfterPoll(outputs);
      if (finished) {
        engine_failures_in_a_row_ = 0;
        failed_alone_.clear();
        engine_worked_ = true;
      } else if (!failed.ok()) {
        FRESHET_LOG(Warning) << "event=engine_request_failed request=endpoint reason="
                             << LogQuoted(Message(failed));
        FRESHET_RETURN_IF_ERROR(CountEngineFailure(failed, /*repeated=*/false));
      }
    } else {
      FRESHET_RETURN_IF_ERROR(EngineFailed(polled.status()));
    }
    MutexLock lock(mu_);
    counters_.engine = engine_.stats();
    counters_.tokens_generated = counters_.engine.tokens_generated;
  }
  FRESHET_RETURN_IF_ERROR(Deliver(std::move(outputs)));
  // Episodes may just have submitted their next turns.
  if ((idle && (episodes_ == nullptr || engine_.Idle())) || full) Idle();
  return absl::OkStatus();
}

void RolloutWorker::Rename(std::string worker) {
  MutexLock lock(mu_);
  new_name_ = std::move(worker);
}

void RolloutWorker::TakeName() {
  std::optional<std::string> name;
  {
    MutexLock lock(mu_);
    if (!new_name_.has_value()) return;
    name = std::exchange(new_name_, std::nullopt);
    if (*name == worker_) return;
    counters_.fenced_name.clear();
  }
  DropLeases();
  worker_ = *std::move(name);
  fenced_ = false;
  gate_closed_ = false;
}

absl::Status RolloutWorker::SwapWeights() {
  std::optional<WeightSnapshot> snapshot = weights_->Take();
  if (!snapshot.has_value()) return absl::OkStatus();
  const absl::Time start = clock_.Now();
  FRESHET_RETURN_IF_ERROR(renewer_.During(
      worker_, LeaseTokens(), [&] { return engine_.LoadWeights(Lane::kRollout, *snapshot); }));
  gate_closed_ = false;  // a newer version may be admitted
  MutexLock lock(mu_);
  ++counters_.weight_swaps;
  counters_.swap_seconds += absl::ToDoubleSeconds(clock_.Now() - start);
  return absl::OkStatus();
}

bool RolloutWorker::StoreFailed(const absl::Status& status) {
  if (!IsTransientStoreError(status)) return false;
  if (++store_failures_ == 1) {
    FRESHET_LOG(Warning) << "event=store_outage reason=" << LogQuoted(Message(status));
    MutexLock lock(mu_);
    ++counters_.store_outages;
  }
  store_retry_at_ = clock_.Now() + BackoffDelay(store_failures_, options_.store_retry_delay,
                                                options_.max_store_retry_delay);
  return true;
}

void RolloutWorker::StoreWorks() {
  if (store_failures_ == 0) return;
  store_failures_ = 0;
  store_retry_at_ = absl::InfinitePast();
  FRESHET_LOG(Info) << "event=store_back";
}

absl::Status RolloutWorker::Deliver(std::vector<GenerationOutput> outputs) {
  absl::Status status;  // the first error; what follows it counts as well
  if (episodes_ != nullptr) {
    for (EpisodeResult& result : episodes_->Advance(std::move(outputs))) {
      status.Update(DeliverEpisode(std::move(result)));
    }
    MutexLock lock(mu_);
    counters_.episodes = episodes_->counters();
  } else {
    for (GenerationOutput& output : outputs) {
      if (!output.error.ok()) {
        status.Update(RequestFailed(output.request_id, output.error));
        continue;
      }
      if (output.lane == Lane::kEvaluation) {
        DeliverEvaluation(static_cast<size_t>(-1 - output.request_id), std::move(output.response));
        continue;
      }
      const auto found = running_.find(output.request_id);
      if (found == running_.end()) continue;
      AddUnsent(output.request_id, found->second, output.sample_index, std::move(output.response));
    }
  }
  FRESHET_RETURN_IF_ERROR(status);
  return SendWhenDue();
}

absl::Status RolloutWorker::DeliverEpisode(EpisodeResult result) {
  const bool evaluation = result.lane == Lane::kEvaluation;
  const auto prompt = static_cast<size_t>(result.group);
  const auto found = running_.find(result.group);
  const bool in_hand = evaluation
                           ? evaluation_.has_value() && evaluation_->in_flight.contains(prompt)
                           : found != running_.end();
  if (!in_hand) return absl::OkStatus();
  if (result.failure == EpisodeFailure::kEngine) return EngineFailed(result.response.status());
  if (result.failure == EpisodeFailure::kRequest) {
    return RequestFailed(evaluation ? -1 - result.group : result.group, result.response.status());
  }
  if (evaluation) {
    DeliverEvaluation(prompt, std::move(result.response));
    return absl::OkStatus();
  }
  if (!result.response.ok()) return GiveUpGroup(result.group, result.response.status());
  AddUnsent(result.group, found->second, result.sample_index, *std::move(result.response));
  return absl::OkStatus();
}

// A sample without an environment has no reward, so the group is handed back.
absl::Status RolloutWorker::GiveUpGroup(int64_t ordinal, const absl::Status& why) {
  FRESHET_RETURN_IF_ERROR(SendUnsent());  // its finished samples count
  const auto found = running_.find(ordinal);
  if (found == running_.end()) return absl::OkStatus();
  const int64_t token = found->second.token;
  // An environment that answers nobody is away; one that has answered anybody since the lease, this
  // group included, fails on this prompt.
  const bool away = IsTransient(why) && found->second.answers_before == episodes_->answers();
  CancelGeneration(ordinal);
  running_.erase(found);
  // No pause if the prompt itself is at fault.
  if (why.code() != absl::StatusCode::kInvalidArgument) {
    leasing_pause_until_ = clock_.Now() + options_.environment_pause;
  }
  {
    MutexLock lock(mu_);
    ++counters_.groups_handed_back;
    counters_.last_wait_reason = Message(why);
  }
  return away ? HandBack(token, Message(why)) : FailLease(token, Message(why));
}

void RolloutWorker::AddUnsent(int64_t ordinal, Running& running, int32_t index, Response response) {
  if (unsent_.empty()) send_at_ = clock_.Now() + options_.put_period;
  if (++running.unsent == running.open.size()) send_at_ = absl::InfinitePast();
  unsent_.push_back({{ordinal, running.attempt, index},
                     running.token,
                     std::make_shared<const Response>(std::move(response))});
}

std::string RolloutWorker::Uid(const SampleKey& key) const {
  return SampleUid(store_.options().job, key);
}

void RolloutWorker::TraceSettled(const Unsent& sample, const absl::Status& status) const {
  if (options_.trace_ratio <= 0) return;
  const std::string uid = Uid(sample.key);
  if (!IsTraced(uid, options_.trace_ratio)) return;
  const Response& response = *sample.response;
  if (!status.ok()) {
    FRESHET_LOG(Info) << "event=sample_refused " << TraceWords(uid)
                      << " reason=" << LogQuoted(Message(status));
    return;
  }
  FRESHET_LOG(Info) << "event=sample_stored " << TraceWords(uid)
                    << " tokens=" << response.response_ids.size()
                    << " version=" << response.spans.back().policy.version
                    << " spans=" << response.spans.size();
}

absl::Status RolloutWorker::CountWhenDue() {
  if (clock_.Now() < next_count_ || StoreAwaited()) return absl::OkStatus();
  return CountGeneration();
}

// A success does not end an outage (StoreWorks), because a full store counts but takes no samples.
absl::Status RolloutWorker::CountGeneration() {
  const auto micros = [](double seconds) {
    return absl::Trunc(absl::Seconds(seconds), absl::Microseconds(1));
  };
  GenerationTotals done;
  {
    MutexLock lock(mu_);
    done = {counters_.tokens_generated, micros(counters_.idle_seconds),
            micros(counters_.swap_seconds)};
  }
  next_count_ = clock_.Now() + options_.count_period;
  if (done == counted_) return absl::OkStatus();
  const absl::Status status = store_.CountGeneration(
      {done.tokens - counted_.tokens, done.idle - counted_.idle, done.swap - counted_.swap});
  if (StoreFailed(status)) return absl::OkStatus();
  FRESHET_RETURN_IF_ERROR(status);
  counted_ = done;
  return absl::OkStatus();
}

absl::Status RolloutWorker::SendWhenDue() {
  if (clock_.Now() < send_at_ && !engine_.Idle()) return absl::OkStatus();
  return SendUnsent();
}

// Sends all finished samples to the store; during an outage they wait.
absl::Status RolloutWorker::SendUnsent() {
  if (unsent_.empty()) return absl::OkStatus();
  if (!StoreAwaited()) FRESHET_RETURN_IF_ERROR(CountGeneration());
  if (!StoreAwaited()) {
    std::vector<SamplePut> puts;
    for (const Unsent& sample : unsent_) {
      puts.push_back({sample.token, sample.key.index, sample.response});
    }
    const absl::StatusOr<std::vector<absl::Status>> statuses = store_.PutSamples(puts);
    if (!StoreFailed(statuses.status())) {
      StoreWorks();
      FRESHET_RETURN_IF_ERROR(statuses.status());
      const std::vector<Unsent> sent(std::make_move_iterator(unsent_.begin()),
                                     std::make_move_iterator(unsent_.end()));
      unsent_.clear();
      for (size_t i = 0; i < sent.size(); ++i) {
        FRESHET_RETURN_IF_ERROR(Settle(sent[i], (*statuses)[i]));
      }
    }
  }
  MutexLock lock(mu_);
  counters_.unsent_samples = static_cast<int64_t>(unsent_.size());
  return absl::OkStatus();
}

// Handles a sample that the store accepted or rejected permanently.
absl::Status RolloutWorker::Settle(const Unsent& sample, const absl::Status& status) {
  TraceSettled(sample, status);
  const auto found = running_.find(sample.key.ordinal);
  const bool ours = found != running_.end() && found->second.token == sample.token;
  if (status.code() == absl::StatusCode::kFailedPrecondition) {
    if (ours) {
      CancelGeneration(sample.key.ordinal);
      running_.erase(found);
    }
    MutexLock lock(mu_);
    ++counters_.samples_fenced;
    return absl::OkStatus();
  }
  if (status.code() == absl::StatusCode::kInvalidArgument &&
      ++refused_in_a_row_ < kMaxRefusedSamples) {
    // Its tokens may stem from a history orphaned by a fork; regenerated ones do not.
    if (ours) {
      CancelGeneration(sample.key.ordinal);
      running_.erase(found);
      FRESHET_RETURN_IF_ERROR(FailLease(sample.token, Message(status)));
    }
    MutexLock lock(mu_);
    ++counters_.samples_refused;
    return absl::OkStatus();
  }
  FRESHET_RETURN_IF_ERROR(status);
  refused_in_a_row_ = 0;
  if (ours) {
    found->second.open.erase(sample.key.index);
    --found->second.unsent;
    if (found->second.open.empty()) {
      running_.erase(found);
      if (most_in_hand_ < std::numeric_limits<int64_t>::max()) ++most_in_hand_;
    }
  }
  hand_backs_in_a_row_ = 0;
  MutexLock lock(mu_);
  counters_.handed_back.clear();
  ++counters_.samples_finished;
  return absl::OkStatus();
}

void RolloutWorker::Idle() {
  const absl::Time start = clock_.Now();
  if (episodes_ != nullptr && episodes_->open() > 0 && !EnginePaused()) {
    episodes_->Await(options_.idle_wait);
  } else {
    store_.AwaitChange(Topic::kAdmission, admission_seen_, options_.idle_wait);
  }
  MutexLock lock(mu_);
  counters_.idle_seconds += absl::ToDoubleSeconds(clock_.Now() - start);
}

const std::string& WaitReason(const RolloutCounters& counters) {
  return counters.handed_back.empty() ? counters.last_wait_reason : counters.handed_back;
}

RolloutCounters RolloutWorker::counters() const {
  MutexLock lock(mu_);
  return counters_;
}

}  // namespace freshet
