#include "trainer/service/training_work.h"

#include <algorithm>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "base/log.h"
#include "base/proto_time.h"
#include "base/status_macros.h"
#include "base/str_cat.h"
#include "datastore/retrying_trajectory_store.h"
#include "job/job_kind.h"
#include "services/runtime/process_identity.h"
#include "trainer/loop/step_report.h"
#include "trainer/loop/trainer_setup.h"
#include "trainer/service/fetched_rows.h"

namespace freshet {
namespace {

constexpr absl::Duration kHookWaitSlice = absl::Milliseconds(500);

using cluster::v1::AssignmentStatus;

}  // namespace

std::string CheckpointRoot(const std::string& state_dir, const std::string& job) {
  return StrCat(state_dir, "/jobs/", job, "/checkpoints");
}

TrainingWork::TrainingWork(cluster::v1::Assign assign, std::string worker,
                           runtime::ControllerCalls& controller, const TrainingContext& context)
    : assign_(std::move(assign)),
      worker_(std::move(worker)),
      controller_(controller),
      context_(context) {
  started_ = last_step_ = context_.clock->Now();
  if (assign_.has_started()) started_ = FromTimestamp(assign_.started());
}

absl::StatusOr<std::unique_ptr<runtime::JobWork>> TrainingWork::Create(
    const cluster::v1::Assign& assign, const std::string& worker,
    runtime::ControllerCalls& controller, const TrainingContext& context) {
  std::unique_ptr<TrainingWork> work(new TrainingWork(assign, worker, controller, context));
  FRESHET_ASSIGN_OR_RETURN(work->weights_, context.open_weights(assign));
  return work;
}

TrainingWork::~TrainingWork() = default;

absl::Status TrainingWork::Run(std::stop_token stop) {
  if (context_.listener != nullptr) {
    context_.listener->OnBegin(assign_.job_id(), assign_.spec(), [this] { return Waiting(); });
  }
  const absl::Status status = Train(stop);
  if (context_.listener != nullptr) context_.listener->OnEnd(assign_.job_id());
  // A stop during the start is not a failure.
  if (stop.stop_requested() && status.code() == absl::StatusCode::kCancelled) {
    return absl::OkStatus();
  }
  return status;
}

absl::Status TrainingWork::Train(std::stop_token stop) {
  RetryOptions retry;
  retry.first_backoff *= context_.time_scale;
  retry.max_backoff *= context_.time_scale;
  retry.on_outage = [this](const absl::Status& status) {
    FRESHET_LOG(Warning) << "event=datastore_outage error=" << LogQuoted(Message(status));
    SetPhase(AssignmentStatus::STATE_RUNNING, StrCat("the datastore: ", Message(status)));
  };
  RetryOptions opening = retry;
  opening.on_outage = [this](const absl::Status& status) {
    SetPhase(AssignmentStatus::STATE_STARTING, StrCat("the datastore: ", Message(status)));
  };
  FRESHET_ASSIGN_OR_RETURN(redis_,
                           OpenWithRetries([this] { return context_.open_store(assign_.job_id()); },
                                           *context_.clock, opening, stop));
  SetPhase(AssignmentStatus::STATE_STARTING, "");
  store_ = std::make_unique<RetryingTrajectoryStore>(*redis_, *context_.clock, retry);

  events_ = std::make_unique<TrainingEvents>(*context_.events, assign_.job_id(), context_.listener,
                                             context_.time_scale);
  if (assign_.spec().has_eval()) {
    evaluations_ =
        std::make_unique<EvaluationRows>(*context_.events, assign_.job_id(), assign_.spec());
  }
  hook_ = MakeHook();
  const absl::Status status = TrainFromNewest(stop);
  NoteLostRanks(status);
  events_->SendLast(stop);
  if (hook_ == nullptr) return status;
  if (status.ok()) AwaitHook(stop);
  hook_ = nullptr;          // a program that still runs is killed
  events_->SendLast(stop);  // the hook's notices
  return status;
}

std::shared_ptr<CheckpointHook> TrainingWork::MakeHook() {
  if (context_.hook.program.empty()) return nullptr;
  return std::make_shared<CheckpointHook>(
      context_.hook, [this](const HookedCheckpoint& checkpoint, const absl::Status& status) {
        OnHookEnd(checkpoint, status);
      });
}

void TrainingWork::AwaitHook(std::stop_token stop) {
  while (!stop.stop_requested() && !hook_->AwaitIdle(kHookWaitSlice)) {
    SetPhase(AssignmentStatus::STATE_RUNNING, hook_->Doing());
  }
}

void TrainingWork::OnHookEnd(const HookedCheckpoint& checkpoint, const absl::Status& status) {
  if (context_.listener != nullptr) {
    context_.listener->OnCheckpointHook(checkpoint.job, status);
  }
  if (status.ok()) {
    FRESHET_LOG(Info) << "event=checkpoint_hook_done version=" << checkpoint.policy.version;
  }
  if (status.ok() || absl::IsAborted(status)) return;
  events_->AddNotice(
      StrCat("checkpoint_hook_failed/", checkpoint.policy.lineage, "/", checkpoint.policy.version),
      "checkpoint_hook_failed",
      StrCat("checkpoint of step ", checkpoint.policy.version, ": ", Message(status)));
}

std::string TrainingWork::CheckpointFolder() const {
  return CheckpointRoot(context_.state_dir, assign_.job_id());
}

void TrainingWork::NoteLostRanks(const absl::Status& status) {
  if (status.ok() || learner_.learner == nullptr) return;
  std::vector<std::string> reasons = learner_.learner->LostRanks();
  if (learner_.learner->StateLost()) {
    if (context_.listener != nullptr) context_.listener->OnStateLost(assign_.job_id());
    reasons.emplace_back(Message(status));
  }
  // Every try of the step may have failed for the same reason.
  const std::set<std::string> different(reasons.begin(), reasons.end());
  for (const std::string& reason : different) {
    events_->AddNotice(StrCat("rank_lost/", runtime::RandomId()), "rank_lost", reason);
  }
}

absl::Status TrainingWork::TrainFromNewest(std::stop_token stop) {
  FRESHET_ASSIGN_OR_RETURN(const FoundCheckpoints found,
                           FindAllCheckpoints(CheckpointFolder(), assign_.job_id()));
  const size_t verified = found.complete.size();
  const size_t all = verified + found.older.size();
  std::vector<std::string> passed_over;
  CheckpointTry::Stage unused = CheckpointTry::Stage::kLoading;
  if (all == 0) return TrainFrom(nullptr, passed_over, found.damaged, stop, unused);
  absl::Status first_failure;
  for (size_t i = 0; i < all; ++i) {
    const std::string& path = i < verified ? found.complete[i].path : found.older[i - verified];
    const absl::StatusOr<FoundCheckpoint> checkpoint =
        i < verified ? found.complete[i] : OpenCheckpoint(path);
    if (absl::IsUnavailable(checkpoint.status())) {
      FRESHET_LOG(Warning) << "event=checkpoint_skipped reason="
                           << LogQuoted(Message(checkpoint.status()));
      first_failure.Update(checkpoint.status());
      continue;
    }
    CheckpointTry tried;
    tried.older = static_cast<int64_t>(all - i) - 1;
    tried.status = checkpoint.ok()
                       ? TrainFrom(&*checkpoint, passed_over, found.damaged, stop, tried.stage)
                       : checkpoint.status();
    const CheckpointDecision decision = DecideCheckpoint(tried);
    if (decision.reason.empty()) return tried.status;
    FRESHET_LOG(Warning) << "event=checkpoint_passed_over path=" << path
                         << " reason=" << LogQuoted(decision.reason);
    first_failure.Update(tried.status);
    if (!decision.try_older) break;
    passed_over.push_back(path);
  }
  return first_failure;
}

absl::Status TrainingWork::StartLearner(const FoundCheckpoint* checkpoint, std::stop_token stop) {
  const job::v1::JobSpec& spec = assign_.spec();
  FetchedRows rows(controller_, assign_.job_id());
  if (checkpoint == nullptr && spec.warmup().has_sft()) {
    FRESHET_RETURN_IF_ERROR(rows.Open());
  }
  const LearnerStart start{spec,
                           context_.roots,
                           checkpoint,
                           CheckpointPath(CheckpointFolder(), 0),
                           rows,
                           [&](int64_t step, int64_t steps, double loss) {
                             SetPhase(AssignmentStatus::STATE_STARTING,
                                      StrCat("warm-up step ", step, " of ", steps));
                             if (step == steps) {
                               FRESHET_LOG(Info) << "event=warmup severity=info text="
                                                 << LogQuoted(StrCat("warm-up done, loss ", loss));
                             }
                             return !stop.stop_requested();
                           },
                           {assign_.job_id(), context_.store_arguments}};
  learner_ = {};  // from a checkpoint that was passed over
  FRESHET_ASSIGN_OR_RETURN(learner_, context_.learners->Start(start));
  return absl::OkStatus();
}

TrainerLoopOptions TrainingWork::LoopOptions(const FoundCheckpoint* checkpoint) const {
  TrainerLoopOptions options =
      MakeLoopOptions(assign_.spec(), assign_.job_id(), learner_.has_reference);
  options.trainer = worker_;
  options.request_id = runtime::RandomId();
  if (checkpoint != nullptr) {
    options.loaded = checkpoint->state.policy;
    options.loaded_digest = checkpoint->state.digest;
  }
  options.checkpoint_root = CheckpointFolder();
  options.checkpoint_files = learner_.checkpoint_files;
  if (evaluations_ != nullptr) options.scores = [this] { return evaluations_->Next(); };
  options.hook = hook_;
  if (Generates(assign_.spec())) {
    options.generated = std::make_shared<const GeneratedFiles>(
        GeneratedFiles::Options{GeneratedFiles::FolderOfRun(options.checkpoint_root),
                                learner_.decode, assign_.spec().output().token_ids()});
  }
  return options;
}

absl::Status TrainingWork::TrainFrom(const FoundCheckpoint* checkpoint,
                                     const std::vector<std::string>& passed_over,
                                     const std::vector<std::string>& damaged, std::stop_token stop,
                                     CheckpointTry::Stage& stage) {
  stage = CheckpointTry::Stage::kLoading;
  FRESHET_RETURN_IF_ERROR(StartLearner(checkpoint, stop));
  TrainerLoopOptions options = LoopOptions(checkpoint);
  options.passed_over = passed_over;
  options.damaged = damaged;
  stage = CheckpointTry::Stage::kOpening;
  return RunLoop(options, /*save_loaded=*/checkpoint == nullptr, stop, stage);
}

absl::Status TrainingWork::RunLoop(const TrainerLoopOptions& options, bool save_loaded,
                                   std::stop_token stop, CheckpointTry::Stage& stage) {
  WeightPublisher publisher(learner_.entries, {weights_->transport()}, weights_->MakeStager(),
                            context_.sync);
  TrainerLoop* loop = nullptr;
  {
    MutexLock lock(mu_);
    TrainerObserver& observer = *this;
    loop_ = std::make_unique<TrainerLoop>(*store_, *learner_.learner, publisher, observer,
                                          *context_.clock, *context_.faults, options);
    loop_->SetPaused(paused_);
    loop = loop_.get();
    training_ = learner_.learner;
    policy_ = options.loaded;
  }
  last_step_ = context_.clock->Now();  // excludes model loading and warm-up from the step
  absl::Status status = loop->Start(save_loaded, stop);
  if (loop->epoch() != 0) stage = CheckpointTry::Stage::kOpened;
  if (status.ok() && !stop.stop_requested()) {
    SetPhase(AssignmentStatus::STATE_RUNNING, "");
    status = loop->Run(stop);
  }
  // Destroy it without the lock: its last checkpoint may still report an outage.
  std::unique_ptr<TrainerLoop> ended;
  {
    MutexLock lock(mu_);
    ended = std::move(loop_);
    training_ = nullptr;
  }
  return status;
}

absl::Status TrainingWork::OnCommitted() {
  FRESHET_ASSIGN_OR_RETURN(StoreStats stats, store_->Stats());
  stats_before_ = stats_now_.value_or(stats);
  stats_now_ = std::move(stats);
  return absl::OkStatus();
}

absl::Status TrainingWork::OnStep(const FinishedStep& report, const WeightSnapshot&) {
  StepMetrics metrics = SummarizeStep(report, stats_before_, *stats_now_, learner_.has_reference,
                                      !assign_.spec().tasks().empty());
  const absl::Time now = context_.clock->Now();
  metrics.step_seconds = absl::ToDoubleSeconds(now - last_step_);
  metrics.wall_seconds = absl::ToDoubleSeconds(now - started_);
  last_step_ = now;
  {
    MutexLock lock(mu_);
    policy_ = report.policy;
    waited_ += report.wait_seconds;
    tokens_per_second_ = metrics.step_seconds > 0
                             ? static_cast<double>(metrics.tokens_trained) / metrics.step_seconds
                             : 0;
    waits_for_ = report.redo ? StrCat("redoing step ", report.step) : "";
  }
  if (context_.listener != nullptr) {
    if (report.redo) {
      context_.listener->OnRedo(assign_.job_id(), report.policy.version);
    } else {
      context_.listener->OnStep(assign_.job_id(), metrics, report);
    }
  }
  for (size_t i = 0; i < report.result.lost_ranks.size(); ++i) {
    events_->AddNotice(StrCat("rank_lost/", report.step, "/", i + 1), "rank_lost",
                       report.result.lost_ranks[i]);
  }
  events_->SendStep(
      report.policy.lineage, metrics,
      SampleRows(report, assign_.spec().output().samples_per_step(), learner_.decode));
  return absl::OkStatus();
}

void TrainingWork::OnCheckpoint(const absl::Status& status) {
  if (!status.ok()) {
    FRESHET_LOG(Error) << "event=checkpoint_failed error=" << LogQuoted(Message(status));
    // If the work is revoked, its status no longer reports the error.
    events_->AddNotice(StrCat("checkpoint_failed/", runtime::RandomId()), "checkpoint_failed",
                       Message(status));
  }
  if (context_.listener != nullptr) {
    context_.listener->OnCheckpoint(assign_.job_id(), status.ok());
  }
}

void TrainingWork::OnRest() {
  events_->SendWaiting();
  MutexLock lock(mu_);
  waits_for_.clear();
}

void TrainingWork::OnStalled(const std::string& reason, absl::Duration waited) {
  FRESHET_LOG(Warning) << "event=waiting job=" << assign_.job_id()
                       << " seconds=" << static_cast<int64_t>(absl::ToDoubleSeconds(waited))
                       << " reason=" << LogQuoted(reason);
  events_->SendWaiting();
  MutexLock lock(mu_);
  waits_for_ = reason;
}

void TrainingWork::SetPhase(AssignmentStatus::State state, const std::string& waits_for) {
  MutexLock lock(mu_);
  state_ = state;
  waits_for_ = waits_for;
}

void TrainingWork::FillStatus(AssignmentStatus& status) const {
  MutexLock lock(mu_);
  if (status.state() == AssignmentStatus::STATE_RUNNING) status.set_state(state_);
  status.set_waits_for(waits_for_);
  if (waits_for_.empty() && training_ != nullptr) status.set_waits_for(training_->WaitsFor());
  if (training_ != nullptr) {
    for (const RankState& state : training_->Ranks()) {
      job::v1::Rank& rank = *status.add_ranks();
      rank.set_rank(state.rank);
      rank.set_state(state.state);
      rank.set_step(state.step);
      rank.set_last_collective(state.last_collective);
    }
  }
  status.mutable_policy()->set_lineage(policy_.lineage);
  status.mutable_policy()->set_version(policy_.version);
}

void TrainingWork::FillLoad(cluster::v1::WorkerStatus& status) const {
  const absl::Time now = context_.clock->Now();
  MutexLock lock(mu_);
  status.set_has_weights(loop_ != nullptr);
  status.set_tokens_per_second(loop_ != nullptr ? tokens_per_second_ : 0);
  const double waiting = loop_ != nullptr ? absl::ToDoubleSeconds(loop_->waiting()) : 0;
  const double waited = std::max(last_waited_, waited_ + waiting);
  const double seconds = absl::ToDoubleSeconds(now - last_load_);
  if (last_load_ != absl::InfinitePast() && seconds > 0) {
    status.set_busy_ratio(std::clamp(1.0 - (waited - last_waited_) / seconds, 0.0, 1.0));
  }
  last_load_ = now;
  last_waited_ = waited;
}

void TrainingWork::SetPaused(bool paused) {
  MutexLock lock(mu_);
  paused_ = paused;
  if (loop_ != nullptr) loop_->SetPaused(paused);
}

void TrainingWork::SetMembers(const cluster::v1::Members& members) {
  weights_->SetMembers(members);
}

absl::Duration TrainingWork::Waiting() const {
  MutexLock lock(mu_);
  return loop_ == nullptr ? absl::ZeroDuration() : loop_->waiting();
}

void TrainingWork::SaveCheckpoint() {
  MutexLock lock(mu_);
  if (loop_ != nullptr) loop_->RequestCheckpoint();
}

}  // namespace freshet
