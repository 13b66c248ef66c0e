#include "rollout/rollout_worker.h"

#include <algorithm>
#include <utility>

#include "services/base/log.h"
#include "services/base/status_macros.h"
#include "services/base/str_cat.h"

namespace freshet {
namespace {

// Requests of the evaluation lane are numbered below zero, so that they never meet an ordinal.
constexpr int64_t kEvaluationRequests = -1;

}  // namespace

RolloutWorker::RolloutWorker(TrajectoryStore& store, InferenceEngine& engine,
                             std::shared_ptr<WeightSubscriber> weights, const Clock& clock,
                             RolloutOptions options)
    : store_(store),
      engine_(engine),
      weights_(std::move(weights)),
      clock_(clock),
      options_(std::move(options)) {}

absl::Status RolloutWorker::Run(std::stop_token stop) {
  next_renewal_ = clock_.Now() + options_.lease_ttl / 3;
  absl::Status status;
  while (status.ok() && !stop.stop_requested()) status = Turn();
  ReturnAll();
  FinishEvaluation(absl::CancelledError("the rollout worker stops"));
  return status;
}

absl::Status RolloutWorker::Turn() {
  FRESHET_RETURN_IF_ERROR(SwapWeights());
  FRESHET_RETURN_IF_ERROR(RenewLeases());
  FRESHET_RETURN_IF_ERROR(LeaseMore());
  AdvanceEvaluation();
  if (engine_.Idle()) {
    Idle();
    return absl::OkStatus();
  }
  FRESHET_ASSIGN_OR_RETURN(std::vector<GenerationOutput> outputs, engine_.Poll());
  {
    MutexLock lock(mu_);
    counters_.tokens_generated = engine_.stats().tokens_generated;
  }
  return Deliver(std::move(outputs));
}

absl::Status RolloutWorker::SwapWeights() {
  std::optional<WeightSnapshot> snapshot = weights_->Take();
  if (!snapshot.has_value()) return absl::OkStatus();
  const absl::Time start = clock_.Now();
  FRESHET_RETURN_IF_ERROR(engine_.LoadWeights(Lane::kRollout, *snapshot));
  gate_closed_ = false;  // a newer version may be let in
  MutexLock lock(mu_);
  ++counters_.weight_swaps;
  counters_.swap_seconds += absl::ToDoubleSeconds(clock_.Now() - start);
  return absl::OkStatus();
}

int64_t RolloutWorker::GroupsThatFit() const {
  constexpr int64_t kMostPerCall = 64;
  return engine_.Admissible(options_.max_prompt_tokens, options_.group_size, options_.sampling,
                            kMostPerCall);
}

absl::Status RolloutWorker::LeaseMore() {
  const uint64_t changes = store_.ChangeCount(Topic::kAdmission);
  // The gate's answer holds until the store says that something changed.
  if (gate_closed_ && changes == admission_seen_) return absl::OkStatus();
  gate_closed_ = false;
  admission_seen_ = changes;
  if (engine_.version(Lane::kRollout).version < 0) return absl::OkStatus();
  const int64_t room = GroupsThatFit();
  if (room == 0) return absl::OkStatus();
  LeaseRequest request;
  request.worker = options_.worker;
  request.request_id = StrCat(next_request_++);
  request.engine = engine_.version(Lane::kRollout);
  request.max_groups = room;
  FRESHET_ASSIGN_OR_RETURN(LeaseReply reply, store_.LeasePrompts(request));
  gate_closed_ = static_cast<int64_t>(reply.leases.size()) < room;
  {
    MutexLock lock(mu_);
    counters_.last_wait_reason = reply.reason;
  }
  for (GroupLease& lease : reply.leases) {
    FRESHET_RETURN_IF_ERROR(SubmitLease(std::move(lease)));
  }
  return absl::OkStatus();
}

absl::Status RolloutWorker::SubmitLease(GroupLease lease) {
  GenerationRequest request;
  request.id = lease.ordinal;
  request.prompt_ids = std::move(lease.prompt.prompt_ids);
  request.seed = options_.seed;
  request.ordinal = lease.ordinal;
  request.sample_indices = lease.missing;
  request.sampling = options_.sampling;
  const bool kept = std::any_of(lease.partials.begin(), lease.partials.end(),
                                [](const Response& r) { return !r.response_ids.empty(); });
  if (kept) request.partials = std::move(lease.partials);
  // A lease of ours that expired meanwhile may come back to us under a new token.
  if (running_.erase(lease.ordinal) > 0) engine_.Cancel(lease.ordinal);
  Running running;
  running.token = lease.token;
  for (const int32_t index : lease.missing) running.open[index] = true;
  const absl::Status status = engine_.Submit(std::move(request));
  if (status.code() == absl::StatusCode::kResourceExhausted) {
    // Longer than estimated: back to the queue; somebody has room later.
    return store_.ReturnLease(lease.token, {}, {});
  }
  FRESHET_RETURN_IF_ERROR(status);
  running_[lease.ordinal] = std::move(running);
  return absl::OkStatus();
}

absl::Status RolloutWorker::RenewLeases() {
  if (clock_.Now() < next_renewal_) return absl::OkStatus();
  next_renewal_ = clock_.Now() + options_.lease_ttl / 3;
  if (running_.empty()) return absl::OkStatus();
  std::vector<int64_t> tokens;
  for (const auto& [id, running] : running_) tokens.push_back(running.token);
  FRESHET_ASSIGN_OR_RETURN(const std::vector<int64_t> lost,
                           store_.RenewLeases(options_.worker, tokens));
  std::erase_if(running_, [&](const auto& entry) {
    if (std::find(lost.begin(), lost.end(), entry.second.token) == lost.end()) return false;
    engine_.Cancel(entry.first);
    MutexLock lock(mu_);
    ++counters_.leases_cancelled;
    return true;
  });
  return absl::OkStatus();
}

absl::Status RolloutWorker::Deliver(std::vector<GenerationOutput> outputs) {
  for (GenerationOutput& output : outputs) {
    if (output.lane == Lane::kEvaluation) {
      if (!evaluation_.has_value()) continue;
      const int64_t prompt = kEvaluationRequests - output.request_id;
      evaluation_->responses[static_cast<size_t>(prompt)] = std::move(output.response);
      ++evaluation_->finished;
      continue;
    }
    FRESHET_RETURN_IF_ERROR(DeliverSample(std::move(output)));
  }
  return absl::OkStatus();
}

absl::Status RolloutWorker::DeliverSample(GenerationOutput output) {
  const auto found = running_.find(output.request_id);
  if (found == running_.end()) return absl::OkStatus();
  Running& running = found->second;
  const absl::Status status =
      store_.PutSample(running.token, output.sample_index, std::move(output.response));
  if (status.code() == absl::StatusCode::kFailedPrecondition) {
    engine_.Cancel(output.request_id);
    running_.erase(found);
    MutexLock lock(mu_);
    ++counters_.samples_fenced;
    return absl::OkStatus();
  }
  FRESHET_RETURN_IF_ERROR(status);
  running.open.erase(output.sample_index);
  if (running.open.empty()) running_.erase(found);
  MutexLock lock(mu_);
  ++counters_.samples_finished;
  return absl::OkStatus();
}

bool RolloutWorker::StartEvaluation(EvaluationRun run) {
  MutexLock lock(mu_);
  if (evaluating_) return false;
  evaluating_ = true;
  queued_evaluation_ = std::move(run);
  return true;
}

bool RolloutWorker::EvaluationBusy() const {
  MutexLock lock(mu_);
  return evaluating_;
}

void RolloutWorker::AdvanceEvaluation() {
  if (!evaluation_.has_value()) {
    MutexLock lock(mu_);
    if (!queued_evaluation_.has_value()) return;
    evaluation_ = ActiveEvaluation{std::move(*queued_evaluation_), 0, 0, {}};
    queued_evaluation_.reset();
  }
  ActiveEvaluation& active = *evaluation_;
  if (active.submitted == 0 && active.responses.empty()) {
    active.responses.resize(active.run.prompts.size());
    const absl::Status status = engine_.LoadWeights(Lane::kEvaluation, active.run.weights);
    if (!status.ok()) return FinishEvaluation(status);
  }
  while (active.submitted < active.run.prompts.size()) {
    const std::vector<int32_t>& prompt = active.run.prompts[active.submitted];
    if (engine_.Admissible(static_cast<int64_t>(prompt.size()), 1, active.run.sampling, 1) == 0) {
      break;
    }
    GenerationRequest request;
    request.id = kEvaluationRequests - static_cast<int64_t>(active.submitted);
    request.lane = Lane::kEvaluation;
    request.prompt_ids = prompt;
    request.seed = active.run.seed;
    request.ordinal = static_cast<int64_t>(active.submitted);
    request.sample_indices = {0};
    request.sampling = active.run.sampling;
    const absl::Status status = engine_.Submit(std::move(request));
    if (!status.ok()) return FinishEvaluation(status);
    ++active.submitted;
  }
  if (active.finished == active.run.prompts.size()) FinishEvaluation(absl::OkStatus());
}

void RolloutWorker::FinishEvaluation(absl::Status status) {
  std::optional<ActiveEvaluation> ended = std::exchange(evaluation_, std::nullopt);
  {
    MutexLock lock(mu_);
    if (!ended.has_value() && queued_evaluation_.has_value()) {
      ended = ActiveEvaluation{std::move(*queued_evaluation_), 0, 0, {}};
    }
    queued_evaluation_.reset();
  }
  if (!ended.has_value()) return;
  if (status.ok()) {
    ended->run.done(std::move(ended->responses));
  } else {
    for (size_t i = 0; i < ended->submitted; ++i) {
      engine_.Cancel(kEvaluationRequests - static_cast<int64_t>(i));
    }
    ended->run.done(std::move(status));
  }
  MutexLock lock(mu_);
  evaluating_ = false;
}

void RolloutWorker::Idle() {
  const absl::Time start = clock_.Now();
  store_.AwaitChange(Topic::kAdmission, admission_seen_, options_.idle_wait);
  MutexLock lock(mu_);
  counters_.idle_seconds += absl::ToDoubleSeconds(clock_.Now() - start);
}

void RolloutWorker::ReturnAll() {
  for (auto& [id, running] : running_) {
    std::vector<int32_t> indices;
    std::vector<Response> partials;
    for (GenerationOutput& output : engine_.Cancel(id)) {
      indices.push_back(output.sample_index);
      partials.push_back(std::move(output.response));
    }
    const absl::Status status = store_.ReturnLease(running.token, indices, partials);
    if (!status.ok()) {
      FRESHET_LOG(Warning) << "event=return_lease_refused ordinal=" << id << " reason=\""
                           << status.message() << "\"";
    }
  }
  running_.clear();
}

RolloutCounters RolloutWorker::counters() const {
  MutexLock lock(mu_);
  return counters_;
}

}  // namespace freshet
