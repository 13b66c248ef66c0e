// How a RolloutWorker acquires, renews and loses leases.

#include <algorithm>
#include <limits>
#include <set>
#include <utility>

#include "base/backoff.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "base/str_cat.h"
#include "base/trace.h"
#include "base/transient.h"
#include "rollout/engine/engine_call.h"
#include "rollout/worker/rollout_worker.h"

namespace freshet {

int64_t RolloutWorker::GroupsThatFit() const {
  constexpr int64_t kMostPerCall = 64;
  const int64_t fitting = engine_.Admissible(options_.max_prompt_tokens, options_.group_size,
                                             options_.sampling, kMostPerCall);
  // A group that fits into no engine is submitted all the same: the refusal says why.
  return fitting == 0 && running_.empty() && engine_.Idle() ? 1 : fitting;
}

absl::Status RolloutWorker::CheckLimit() const {
  const int64_t most = engine_.stats().max_tokens;
  if (most == 0 || options_.max_sample_tokens <= most) return absl::OkStatus();
  return InvalidArgument(
      "a sample of the job may have ", options_.max_sample_tokens, " tokens (longest prompt ",
      options_.max_prompt_tokens, ", rollout.max_new_tokens ", options_.sampling.max_new_tokens,
      "), but the inference server's limit is ", most,
      "; start it with a larger --max-model-len (SGLang: --context-length), or reduce "
      "rollout.max_new_tokens");
}

// Number of groups whose episodes may start. Up to twice the engine's capacity may be open, because
// episodes that wait for their environment use none.
int64_t RolloutWorker::EpisodeRoom() const {
  constexpr int64_t kEpisodesPerPlace = 2;
  if (episodes_ == nullptr) return std::numeric_limits<int64_t>::max();
  if (episodes_->waiting_for_engine()) return 0;
  const int64_t most =
      std::min(kEpisodesPerPlace * engine_.stats().capacity_sequences, episodes_->most_open());
  if (episodes_->open() == 0) return std::max<int64_t>(most / options_.group_size, 1);
  return std::max<int64_t>((most - episodes_->open()) / options_.group_size, 0);
}

absl::Status RolloutWorker::LeaseMore() {
  const uint64_t changes = store_.ChangeCount(Topic::kAdmission);
  // The gate's reply holds until the store announces a change.
  if (gate_closed_ && changes == admission_seen_) return absl::OkStatus();
  gate_closed_ = false;
  admission_seen_ = changes;
  if (paused_.load() || fenced_ || StoreAwaited()) return absl::OkStatus();
  if (clock_.Now() < leasing_pause_until_) return absl::OkStatus();
  if (engine_.version(Lane::kRollout).version < 0) return absl::OkStatus();
  FRESHET_RETURN_IF_ERROR(CheckLimit());
  if (QueueWaits()) {
    MutexLock lock(mu_);
    counters_.last_wait_reason = StrCat("requests of this rollout's endpoint wait for room first: ",
                                        queue_->stats().waiting);
    return absl::OkStatus();
  }
  if (EvaluationWaitsForEngine()) return absl::OkStatus();
  const int64_t allowed = most_in_hand_ - InHand();
  int64_t room = std::min({GroupsThatFit(), EpisodeRoom(), lease_share_.load(), allowed});
  if (room <= 0) return absl::OkStatus();
  // Lease enough to get a group on which the engine has not failed. Two extra, because bad prompts
  // may follow each other.
  const bool only_one = !failed_alone_.empty() && InHand() == 0;
  if (only_one) room = static_cast<int64_t>(failed_alone_.size()) + 2;
  LeaseRequest request;
  request.worker = worker_;
  request.request_id = StrCat(options_.request_prefix, next_request_);
  request.engine = engine_.version(Lane::kRollout);
  request.max_groups = room;
  absl::StatusOr<LeaseReply> reply = store_.LeasePrompts(request);
  // Repeat the same id: leases of a lost reply are returned with the next one.
  if (StoreFailed(reply.status())) return absl::OkStatus();
  StoreWorks();
  if (reply.status().code() == absl::StatusCode::kFailedPrecondition) {
    DropLeases();
    fenced_ = true;
    MutexLock lock(mu_);
    counters_.fenced_name = worker_;
    counters_.last_wait_reason = Message(reply.status());
    counters_.handed_back.clear();
    return absl::OkStatus();
  }
  FRESHET_RETURN_IF_ERROR(reply.status());
  ++next_request_;
  gate_closed_ = static_cast<int64_t>(reply->leases.size()) < room;
  {
    MutexLock lock(mu_);
    counters_.last_wait_reason = reply->reason;
    if (reply->leases.empty() && running_.empty()) counters_.handed_back.clear();
    counters_.committed = std::max(counters_.committed, reply->committed);
  }
  return SubmitLeases(std::move(reply->leases), only_one);
}

// With `only_one`, submits one lease, preferably of a group on which the engine has not failed, and
// returns the others. Also returns the rest once the engine fails.
absl::Status RolloutWorker::SubmitLeases(std::vector<GroupLease> leases, bool only_one) {
  if (only_one && !leases.empty()) {
    const auto other = std::find_if(leases.rbegin(), leases.rend(), [this](const GroupLease& l) {
      return !failed_alone_.contains(l.ordinal);
    });
    if (other != leases.rend()) std::swap(leases.front(), *other);
  }
  const int failures_before = engine_failures_in_a_row_;
  absl::Status status;
  for (size_t i = 0; i < leases.size(); ++i) {
    if (!status.ok() || engine_failures_in_a_row_ > failures_before || (only_one && i > 0)) {
      status.Update(
          ReturnLease(leases[i].token, "an engine that has failed tries one group at a time"));
    } else {
      status.Update(SubmitLease(std::move(leases[i])));
    }
  }
  return status;
}

SamplingParams RolloutWorker::SamplingOf(const GroupLease& lease) const {
  SamplingParams sampling = options_.sampling;
  if (lease.max_new_tokens <= 0) return sampling;
  const int64_t limit = std::max<int64_t>({lease.max_new_tokens, sampling.min_new_tokens, 1});
  sampling.max_new_tokens = static_cast<int32_t>(std::min<int64_t>(sampling.max_new_tokens, limit));
  return sampling;
}

absl::Status RolloutWorker::SubmitLease(GroupLease lease) {
  // A lease of ours that expired may be granted to us again under a new token.
  if (running_.erase(lease.ordinal) > 0) CancelGeneration(lease.ordinal);
  Running running;
  running.token = lease.token;
  running.attempt = lease.attempt;
  if (episodes_ != nullptr) running.answers_before = episodes_->answers();
  std::vector<std::string> uids;
  if (episodes_ != nullptr || options_.trace_ratio > 0) {
    for (const int32_t index : lease.missing) {
      uids.push_back(Uid({lease.ordinal, lease.attempt, index}));
      if (!IsTraced(uids.back(), options_.trace_ratio)) continue;
      FRESHET_LOG(Info) << "event=sample_leased " << TraceWords(uids.back())
                        << " token=" << lease.token
                        << " version=" << engine_.version(Lane::kRollout).version;
    }
  }
  running.open.insert(lease.missing.begin(), lease.missing.end());
  SamplingParams sampling = SamplingOf(lease);
  if (episodes_ != nullptr) {
    running_[lease.ordinal] = std::move(running);
    episodes_->Start({Lane::kRollout, lease.ordinal, std::move(lease.prompt.prompt_ids),
                      std::move(lease.prompt.attributes), options_.seed, lease.ordinal,
                      std::move(lease.missing), std::move(sampling), std::move(uids)});
    return absl::OkStatus();
  }
  GenerationRequest request;
  request.id = lease.ordinal;
  request.prompt_ids = std::move(lease.prompt.prompt_ids);
  request.seed = options_.seed;
  request.ordinal = lease.ordinal;
  request.sample_indices = lease.missing;
  request.sampling = std::move(sampling);
  const bool kept = std::any_of(lease.partials.begin(), lease.partials.end(),
                                [](const Response& r) { return !r.response_ids.empty(); });
  if (kept) request.partials = std::move(lease.partials);
  const absl::Status status = CallEngine([&] { return engine_.Submit(std::move(request)); });
  if (status.code() == absl::StatusCode::kResourceExhausted) {
    // The request is larger than estimated: requeue it until an engine has room.
    return ReturnLease(lease.token, Message(status));
  }
  if (status.code() == absl::StatusCode::kInvalidArgument) {
    return FailLease(lease.token, Message(status));
  }
  running_[lease.ordinal] = std::move(running);
  return status.ok() ? status : EngineFailed(status);
}

// ReturnLease, HandBack and FailLease ignore leases that cannot be returned or are not live; these
// expire.
absl::Status RolloutWorker::ReturnLease(int64_t token, const std::string& why) {
  FRESHET_LOG(Warning) << "event=lease_returned token=" << token << " reason=" << LogQuoted(why);
  return IgnoreLostLease(store_.ReturnLease(token, {}, {}));
}

absl::Status RolloutWorker::HandBack(int64_t token, const std::string& why) {
  ++hand_backs_in_a_row_;
  if (hand_backs_log_.Admit("", clock_.Now())) {
    FRESHET_LOG(Warning) << "event=lease_handed_back token=" << token
                         << " in_a_row=" << hand_backs_in_a_row_ << " reason=" << LogQuoted(why);
  }
  {
    MutexLock lock(mu_);
    counters_.handed_back =
        StrCat(hand_backs_in_a_row_, " leases in a row were handed back, the last: ", why,
               "; a group is given up after ", store_.options().max_hand_backs,
               " (rollout.max_hand_backs), counted at most once per ",
               absl::FormatDuration(store_.lease_ttl()));
  }
  return IgnoreLostLease(store_.HandBackLease(token, why));
}

// They are not the present reason to wait. Their number stays.
void RolloutWorker::ForgetHandBacks() {
  MutexLock lock(mu_);
  counters_.handed_back.clear();
}

absl::Status RolloutWorker::FailLease(int64_t token, const std::string& why) {
  FRESHET_LOG(Warning) << "event=lease_failed token=" << token << " reason=" << LogQuoted(why);
  return IgnoreLostLease(store_.FailLease(token, why));
}

absl::Status RolloutWorker::IgnoreLostLease(const absl::Status& status) {
  if (StoreFailed(status) || status.code() == absl::StatusCode::kFailedPrecondition) {
    return absl::OkStatus();
  }
  return status;
}

int64_t RolloutWorker::InHand() const {
  return static_cast<int64_t>(running_.size()) + EvaluationInFlight();
}

// A request of the queue that does not fit would never get room if smaller groups took what becomes
// free.
bool RolloutWorker::QueueWaits() const { return queue_ != nullptr && queue_->stats().waiting > 0; }

// Leasing pauses after an engine failure, so that other engines can take the groups.
bool RolloutWorker::PausedByFailure() const {
  return engine_failures_in_a_row_ > 0 && clock_.Now() < leasing_pause_until_;
}

// Whether a failure on `request`, the engine's only request, is blamed on the request rather than
// the engine. A request that is leased again is blamed: no other was available.
bool RolloutWorker::IsToBlame(int64_t request) const {
  if (options_.most_engine_failures == std::numeric_limits<int>::max()) return true;
  return failed_alone_.empty() ? engine_worked_ : failed_alone_.contains(request);
}

// Discards the output of everything in flight and restarts it.
absl::Status RolloutWorker::EngineFailed(const absl::Status& why) {
  FRESHET_LOG(Warning) << "event=engine_failed groups=" << running_.size()
                       << " evaluation_prompts=" << EvaluationInFlight()
                       << " reason=" << LogQuoted(Message(why));
  ForgetHandBacks();
  // A failure can be attributed only if the engine had a single request, and not if a server is
  // lost.
  const bool only_request = InHand() == 1 && (queue_ == nullptr || queue_->stats().running == 0);
  const bool lost = absl::IsUnavailable(why);
  const bool alone = only_request && !lost;
  if (queue_ != nullptr) queue_->EngineFailed(why);
  const absl::Status sent = SendUnsent();  // samples finished earlier
  evaluation_yields_ = EvaluationInFlight() > 0;
  bool blame = false, repeated = false;
  if (alone && InHand() == 1) {  // SendUnsent may have dropped its lease
    const int64_t request = evaluation_yields_
                                ? -1 - static_cast<int64_t>(*evaluation_->in_flight.begin())
                                : running_.begin()->first;
    blame = IsToBlame(request);
    repeated = !failed_alone_.insert(request).second;
  }
  const std::set<size_t> samples =
      evaluation_.has_value() ? evaluation_->in_flight : std::set<size_t>();
  const bool ends_server = only_request && lost;
  for (const size_t sample : samples) TakeBackEvaluation(sample, why, blame || ends_server);
  for (const auto& [ordinal, running] : running_) CancelGeneration(ordinal);
  FRESHET_RETURN_IF_ERROR(sent);
  for (const auto& [ordinal, running] : running_) {
    if (StoreAwaited()) break;  // leases expire during an outage
    // A prompt that ends the server each time moves behind the others, and is given up at length.
    FRESHET_RETURN_IF_ERROR(blame         ? FailLease(running.token, Message(why))
                            : ends_server ? HandBack(running.token, Message(why))
                                          : ReturnLease(running.token, Message(why)));
  }
  running_.clear();
  most_in_hand_ = 1;
  return CountEngineFailure(why, repeated);
}

// `request`: an ordinal, or -1 - I for sample I of the evaluation. The others go on.
absl::Status RolloutWorker::RequestFailed(int64_t request, const absl::Status& why) {
  FRESHET_LOG(Warning) << "event=engine_request_failed request=" << request
                       << " reason=" << LogQuoted(Message(why));
  FRESHET_RETURN_IF_ERROR(SendUnsent());  // its finished samples count
  const auto found = running_.find(request);
  const auto sample = static_cast<size_t>(-1 - request);
  const bool in_hand = request < 0
                           ? evaluation_.has_value() && evaluation_->in_flight.contains(sample)
                           : found != running_.end();
  if (!in_hand) return absl::OkStatus();
  ForgetHandBacks();
  // A server without room for it has not failed on it.
  const bool refused = IsTransient(why);
  const bool blame = !refused && IsToBlame(request);
  const bool repeated = !refused && !failed_alone_.insert(request).second;
  if (request < 0) {
    TakeBackEvaluation(sample, why, blame);
  } else {
    const int64_t token = found->second.token;
    CancelGeneration(request);
    running_.erase(found);
    if (!StoreAwaited()) {  // leases expire during an outage
      FRESHET_RETURN_IF_ERROR(refused ? HandBack(token, Message(why))
                              : blame ? FailLease(token, Message(why))
                                      : ReturnLease(token, Message(why)));
    }
  }
  if (refused && PausedByFailure()) return absl::OkStatus();  // counted with the others
  return CountEngineFailure(why, repeated);
}

// Leasing pauses; the pause is longer if the same request has failed before.
absl::Status RolloutWorker::CountEngineFailure(const absl::Status& why, bool repeated) {
  {
    MutexLock lock(mu_);
    ++counters_.engine_failures;
    counters_.last_wait_reason = Message(why);
  }
  if (++engine_failures_in_a_row_ >= options_.most_engine_failures) return why;
  constexpr absl::Duration kFirstPause = absl::Milliseconds(20);
  leasing_pause_until_ =
      clock_.Now() +
      (repeated ? options_.environment_pause
                : BackoffDelay(engine_failures_in_a_row_, kFirstPause, options_.environment_pause));
  return absl::OkStatus();
}

std::vector<int64_t> RolloutWorker::LeaseTokens() const {
  std::vector<int64_t> tokens;
  for (const auto& [ordinal, running] : running_) tokens.push_back(running.token);
  return tokens;
}

absl::Status RolloutWorker::RenewLeases() {
  if (clock_.Now() < next_renewal_ || StoreAwaited()) return absl::OkStatus();
  if (!running_.empty()) {
    const absl::StatusOr<std::vector<int64_t>> lost = store_.RenewLeases(worker_, LeaseTokens());
    if (StoreFailed(lost.status())) return absl::OkStatus();
    StoreWorks();
    if (lost.status().code() == absl::StatusCode::kFailedPrecondition) {
      DropLeases();
    } else {
      FRESHET_RETURN_IF_ERROR(lost.status());
      std::erase_if(running_, [&](const auto& entry) {
        if (std::find(lost->begin(), lost->end(), entry.second.token) == lost->end()) return false;
        CancelGeneration(entry.first);
        MutexLock lock(mu_);
        ++counters_.leases_cancelled;
        return true;
      });
    }
  }
  next_renewal_ = clock_.Now() + options_.lease_ttl / 3;
  return absl::OkStatus();
}

void RolloutWorker::CancelGeneration(int64_t ordinal) {
  if (episodes_ != nullptr) {
    episodes_->Cancel(Lane::kRollout, ordinal);
  } else {
    engine_.Cancel(ordinal);
  }
}

// All leases now belong to others, and so do the samples made under them.
void RolloutWorker::DropLeases() {
  for (const auto& [ordinal, running] : running_) CancelGeneration(ordinal);
  MutexLock lock(mu_);
  counters_.leases_cancelled += static_cast<int64_t>(running_.size());
  counters_.samples_fenced += static_cast<int64_t>(unsent_.size());
  counters_.unsent_samples = 0;
  running_.clear();
  unsent_.clear();
}

void RolloutWorker::ReturnAll() {
  store_retry_at_ = absl::InfinitePast();  // try once more
  const absl::Status sent = SendUnsent();
  if (!sent.ok() || !unsent_.empty()) {
    FRESHET_LOG(Warning) << "event=samples_not_sent count=" << unsent_.size()
                         << " reason=" << LogQuoted(Message(sent));
  }
  for (auto& [ordinal, running] : running_) {
    std::vector<int32_t> indices;
    std::vector<Response> partials;
    if (episodes_ != nullptr) {
      episodes_->Cancel(Lane::kRollout, ordinal);
    } else {
      for (GenerationOutput& output : engine_.Cancel(ordinal)) {
        indices.push_back(output.sample_index);
        partials.push_back(std::move(output.response));
      }
    }
    absl::Status status = store_.ReturnLease(running.token, indices, partials);
    // Unusable tokens (for example after a fork) must not block returning the lease.
    if (status.code() == absl::StatusCode::kInvalidArgument) {
      status = store_.ReturnLease(running.token, {}, {});
    }
    if (!status.ok()) {
      FRESHET_LOG(Warning) << "event=return_lease_refused ordinal=" << ordinal
                           << " reason=" << LogQuoted(Message(status));
    }
    if (StoreFailed(status)) break;  // the others expire as well
  }
  for (auto& [ordinal, running] : running_) CancelGeneration(ordinal);
  running_.clear();
  unsent_.clear();
}

}  // namespace freshet
