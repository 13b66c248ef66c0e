#include "local/local_run.h"

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <optional>
#include <set>
#include <stop_token>
#include <thread>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "base/container_limits.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "base/str_cat.h"
#include "controller/jobs/plan/call_limits.h"
#include "controller/jobs/plan/death_reason.h"
#include "controller/jobs/plan/watchdog.h"
#include "dataset/dataset_setup.h"
#include "datastore/memory/in_memory_trajectory_store.h"
#include "job/eval_sets.h"
#include "job/job_kind.h"
#include "local/evaluator.h"
#include "local/local_agent.h"
#include "local/local_environments.h"
#include "local/local_services.h"
#include "local/run_summary.h"
#include "model/gpu.h"
#include "model/torch_threads.h"
#include "rollout/engine/native_engine.h"
#include "rollout/worker/rollout_setup.h"
#include "runlog/report.h"
#include "services/reward/worker/reward_setup.h"
#include "services/reward/worker/reward_worker.h"
#include "trainer/checkpoint/checkpoint_score.h"
#include "trainer/loop/trainer_setup.h"
#include "trainer/policy_learner_factory.h"
#include "trainer/rank_process.h"
#include "weights/inprocess_transport.h"

namespace freshet {
namespace {

constexpr absl::Duration kControlPeriod = absl::Milliseconds(50);
constexpr int64_t kMostLoggedDeaths = 8;  // of a burst
// While the trainer waits for an evaluation.
constexpr absl::Duration kAwaitedEvaluationPeriod = absl::Milliseconds(5);
constexpr absl::Duration kEvaluationDeadline = absl::Minutes(10);  // for each set
// How long a stopping run waits for an evaluation that the trainer waits for.
constexpr absl::Duration kEvaluationGrace = absl::Seconds(2);

class TrainingRowsOfDataset final : public WarmupRows {
 public:
  explicit TrainingRowsOfDataset(const Dataset& data) : data_(data) {}
  int64_t size() const override { return data_.size(); }
  absl::StatusOr<WarmupRow> Get(int64_t index) override {
    FRESHET_ASSIGN_OR_RETURN(DatasetRow row, data_.Get(index));
    return WarmupRow{std::move(row.prompt), std::move(row.attributes), data_.Where(index)};
  }

 private:
  const Dataset& data_;
};

// FAILED_PRECONDITION: a component of the reward has no call left.
absl::Status CheckCalls(const JobSpec& spec, const InMemoryCallBudget& calls) {
  const std::string used_up = FindCallsUsedUp(spec.reward(), calls.Read());
  return used_up.empty() ? absl::OkStatus() : FailedPrecondition(used_up);
}

}  // namespace

// The parts of a running job, in the order of creation; destroyed in reverse.
struct LocalRun::Roles {
  Mutex mu;
  std::vector<CheckpointScore> scores ABSL_GUARDED_BY(mu);  // that the trainer has not taken
  absl::Time start;
  int64_t ledger_seq = 0;  // last row in the folder's ledger before the recorder opens it
  std::shared_ptr<PolicyLearner> learner;  // null in a job of kind generate
  std::shared_ptr<Learner> trained;        // `learner`, or it and other ranks; or a FrozenLearner
  std::vector<WeightEntry> entries;
  std::unique_ptr<InMemoryTrajectoryStore> store;
  std::shared_ptr<WeightSubscriber> subscriber = std::make_shared<WeightSubscriber>();
  std::unique_ptr<NativeEngine> engine;
  std::unique_ptr<EnvironmentClient> environments;  // only if samples are episodes with one
  std::unique_ptr<EpisodeRunner> episodes;
  std::unique_ptr<LocalAgent> agent;  // only if samples are episodes of an agent
  std::unique_ptr<RolloutWorker> rollout;
  // Of the rollouts, and of the evaluations if there are any.
  std::vector<std::unique_ptr<RewardWorker>> reward_workers;
  std::unique_ptr<PromptFeeder> feeder;
  std::unique_ptr<Evaluator> evaluator;
  std::unique_ptr<MetricsServer> metrics;
  std::unique_ptr<RunRecorder> recorder;
  std::unique_ptr<WeightPublisher> publisher;
  std::unique_ptr<TrainerLoop> trainer;
  DeathWatch deaths;
  std::vector<DeadLetter> dead;  // the newest ones, newest first
  int64_t deaths_logged = 0;

  // Set by the role threads. `failure` is the first error of any role.
  absl::Status failure ABSL_GUARDED_BY(mu);
  bool trainer_done ABSL_GUARDED_BY(mu) = false;
  std::atomic<bool> evaluation_awaited{false};  // the trainer waits for it before it continues

  std::stop_source stop_trainer;
  std::stop_source stop_workers;
  std::vector<std::jthread> threads;
  std::jthread trainer_thread;

  void Fail(const absl::Status& status) {
    if (status.ok()) return;
    MutexLock lock(mu);
    if (failure.ok()) failure = status;
  }
  absl::Status Failure() {
    MutexLock lock(mu);
    return failure;
  }
};

LocalRun::LocalRun(const JobSetup& setup, const RunFolder& folder, Display& display,
                   const Clock& clock, FaultPoints& faults, LocalRunOptions options)
    : setup_(setup),
      folder_(folder),
      display_(display),
      clock_(clock),
      faults_(faults),
      options_(std::move(options)),
      decode_([this](const std::vector<int32_t>& ids) {
        return setup_.model.tokenizer->Decode(ids, /*skip_special=*/true);
      }) {}

LocalRun::~LocalRun() = default;

void LocalRun::RequestStop() {
  MutexLock lock(mu_);
  stop_requested_ = true;
  turn_due_ = true;
  wake_.NotifyAll();
}

void LocalRun::WakeController() {
  MutexLock lock(mu_);
  turn_due_ = true;
  wake_.NotifyAll();
}

bool LocalRun::StopRequested() {
  MutexLock lock(mu_);
  return stop_requested_;
}

absl::StatusOr<RunResult> LocalRun::Run() {
  Roles roles;
  roles.start = clock_.Now();
  const int64_t trained = options_.resume.origin.policy.version;
  const std::vector<job::v1::EvalSet> sets = EvalSets(setup_.spec);
  const bool evaluated = std::all_of(sets.begin(), sets.end(), [&](const job::v1::EvalSet& set) {
    return options_.resume.evaluated.contains(set.name());
  });
  if (trained >= setup_.spec.trainer().steps() && evaluated) {
    if (!std::filesystem::exists(folder_.File("report.html"))) {
      FRESHET_RETURN_IF_ERROR(WriteReport(folder_.path()));
    }
    return RunResult{RunOutcome::kAlreadyFinished, trained, ""};
  }
  // Roles share the cores as threads; intra-op threads in each would oversubscribe them.
  UseOneTorchThread();
  FRESHET_RETURN_IF_ERROR(MakeStore(roles));
  FRESHET_RETURN_IF_ERROR(MakeLearner(roles));
  if (StopRequested()) return RunResult{RunOutcome::kInterrupted, 0, ""};
  FRESHET_RETURN_IF_ERROR(MakeRoles(roles));
  if (options_.status != nullptr) {
    options_.status->Watch(roles.store.get(), roles.rollout.get(),
                           roles.reward_workers.front().get());
    options_.status->SetState(job::v1::JOB_STATE_RUNNING, "the trainer is at work");
  }
  StartThreads(roles);
  absl::Status status = Control(roles);
  if (status.ok() && !StopRequested()) status = FinalEvaluation(roles);
  StopThreads(roles);
  roles.trainer->RecordScores();
  if (options_.status != nullptr) options_.status->Watch(nullptr, nullptr);
  const absl::Status exported = roles.recorder->ExportLedger();
  if (const absl::Status failure = roles.Failure();
      !failure.ok() && !StopRequested() && exported.ok() && roles.trained->StateLost()) {
    return RunResult{RunOutcome::kStateLost, roles.trainer->committed(), Message(failure)};
  }
  // A role's failure takes precedence over the errors that it caused in others.
  if (const absl::Status failure = roles.Failure();
      !failure.ok() && (status.ok() || absl::IsCancelled(status))) {
    status = failure;
  }
  if (status.ok()) status = exported;
  const absl::Status report = WriteReport(folder_.path());
  if (status.ok()) status = report;
  FRESHET_RETURN_IF_ERROR(status);
  const int64_t committed = roles.trainer->committed();
  return RunResult{
      committed >= setup_.spec.trainer().steps() ? RunOutcome::kFinished : RunOutcome::kInterrupted,
      committed, ""};
}

// Creates the store and its first row in the folder's ledger: from here on a killed run can be
// resumed.
absl::Status LocalRun::MakeStore(Roles& roles) {
  const ResumePoint& resume = options_.resume;
  FRESHET_ASSIGN_OR_RETURN(roles.store,
                           InMemoryTrajectoryStore::Create(setup_.store, resume.origin, clock_));
  if (resume.origin.resumed) {
    FRESHET_RETURN_IF_ERROR(roles.store->RecordResume(
        resume.origin.epoch + 1, resume.parent_lineage, resume.origin.policy.version,
        resume.checkpoint.has_value() ? resume.checkpoint->manifest_sha256 : ""));
  }
  FRESHET_ASSIGN_OR_RETURN(LedgerLog ledger, LedgerLog::Open(folder_.File("ledger.jsonl")));
  FRESHET_ASSIGN_OR_RETURN(const std::vector<LedgerRow> rows,
                           roles.store->ReadLedger(resume.origin.ledger_seq, /*max_rows=*/1));
  if (rows.size() != 1) return Internal("the store's ledger begins with ", rows.size(), " rows");
  roles.ledger_seq = rows.back().seq;
  return ledger.Append(rows);
}

// Loads the initial weights: from the checkpoint, or from the model followed by the warm-up.
absl::Status LocalRun::MakeLearner(Roles& roles) {
  if (Generates(setup_.spec)) {
    FRESHET_ASSIGN_OR_RETURN(std::unique_ptr<FrozenLearner> frozen,
                             MakeFrozenLearner(setup_.spec, setup_.model));
    display_.ShowSetup(DescribeSetup(setup_, folder_.path(), frozen->num_parameters(),
                                     /*trainer_threads=*/1, options_.resume.origin));
    roles.entries = frozen->entries();
    roles.trained = std::move(frozen);
    return absl::OkStatus();
  }
  PolicyLearnerOptions options = MakeLearnerOptions(setup_.spec, setup_.model.config, setup_.loss,
                                                    UsableProcessors(ReadContainerLimits()));
  // The setup outlives the learner.
  options.tokenizer = {std::shared_ptr<const Tokenizer>(), setup_.model.tokenizer.get()};
  FRESHET_ASSIGN_OR_RETURN(roles.learner, PolicyLearner::Create(std::move(options), clock_));
  display_.ShowSetup(DescribeSetup(setup_, folder_.path(), roles.learner->num_parameters(),
                                   roles.learner->threads(), options_.resume.origin));
  TrainingRowsOfDataset rows(*setup_.data.train);
  const std::optional<FoundCheckpoint>& checkpoint = options_.resume.checkpoint;
  const absl::Time began = clock_.Now();
  const LearnerStart start{setup_.spec,
                           DataRoots::Unlimited(),
                           checkpoint.has_value() ? &*checkpoint : nullptr,
                           CheckpointPath(folder_.File("checkpoints"), 0),
                           rows,
                           [&](int64_t step, int64_t steps, double loss) {
                             const double seconds = absl::ToDoubleSeconds(clock_.Now() - began);
                             display_.ShowWarmup({"sft", step, steps, loss, seconds});
                             return !StopRequested();
                           }};
  const absl::Status status =
      LoadWeights(start, setup_.model, setup_.loss.NeedsReference(), *roles.learner);
  roles.entries = roles.learner->WeightEntries();
  return StopRequested() && absl::IsCancelled(status) ? absl::OkStatus() : status;
}

absl::Status LocalRun::MakeRoles(Roles& roles) {
  const JobSpec& spec = setup_.spec;
  const ResumePoint& resume = options_.resume;
  FRESHET_ASSIGN_OR_RETURN(roles.engine,
                           NativeEngine::Create(setup_.model.config, MakeEngineOptions(spec)));
  if (HasAgent(spec)) {
    FRESHET_ASSIGN_OR_RETURN(roles.agent, LocalAgent::Start(setup_, *roles.engine, clock_));
  } else if (spec.has_environment()) {
    if (spec.environment().type() == "grpc") {
      roles.environments = ConnectEnvironment(spec.environment(), clock_);
    } else {
      roles.environments = std::make_unique<LocalEnvironments>(BuiltinEnvironments());
    }
    roles.episodes = std::make_unique<EpisodeRunner>(*roles.engine, *roles.environments, clock_,
                                                     MakeEpisodeText(spec, *setup_.model.tokenizer),
                                                     MakeEpisodeOptions(spec));
  }
  RolloutOptions rollout_options =
      MakeRolloutOptions(spec, setup_.sampling, setup_.prompts.longest);
  rollout_options.count_period = absl::ZeroDuration();  // costs nothing in memory
  Episodes* episodes = roles.episodes.get();
  GenerationQueue* requests = nullptr;
  if (roles.agent != nullptr) {
    episodes = &roles.agent->episodes();
    requests = &roles.agent->queue();
  }
  roles.rollout =
      std::make_unique<RolloutWorker>(*roles.store, *roles.engine, roles.subscriber, clock_,
                                      std::move(rollout_options), episodes, requests);
  RewardWorkerOptions reward_options = MakeRewardOptions(spec);
  reward_options.job = setup_.store.job;
  reward_options.calls = options_.calls.get();
  std::vector<RowQueue*> scored = {roles.store.get()};
  if (!setup_.data.held_out.empty()) {
    scored.push_back(&roles.store->evaluations());
    FRESHET_ASSIGN_OR_RETURN(roles.evaluator, Evaluator::Create(setup_, roles.store->evaluations(),
                                                                *roles.rollout, clock_));
  }
  for (RowQueue* queue : scored) {
    roles.reward_workers.push_back(
        std::make_unique<RewardWorker>(*queue, *setup_.scorer, decode_, reward_options));
  }
  PromptFeederOptions feeder_options = MakeFeederOptions(spec, setup_.prompts);
  feeder_options.first_attempt = resume.first_attempt;
  feeder_options.start = resume.origin.cursor;
  roles.feeder = std::make_unique<PromptFeeder>(*roles.store, *setup_.data.train,
                                                MakePromptEncoder(spec, *setup_.model.tokenizer),
                                                feeder_options);
  RunRecorder::Options recorder_options;
  recorder_options.start = roles.start;
  recorder_options.wall_offset_seconds = resume.wall_seconds;
  recorder_options.first_ledger_seq = roles.ledger_seq;
  recorder_options.rows = options_.rows;
  recorder_options.status = options_.status;
  if (options_.metrics_port > 0) {
    FRESHET_ASSIGN_OR_RETURN(roles.metrics,
                             MetricsServer::Start(options_.metrics_port, spec, ReadGpuMemory));
    recorder_options.metrics = roles.metrics.get();
  }
  recorder_options.before_step = [this, &roles] { return AwaitEvaluationWhenExact(roles); };
  recorder_options.on_published = [this, &roles](int64_t step, const WeightSnapshot& weights) {
    return EvaluateWhenDue(roles, step, weights);
  };
  recorder_options.rollout_waits = [&roles] { return roles.rollout->counters().handed_back; };
  FRESHET_ASSIGN_OR_RETURN(roles.recorder,
                           RunRecorder::Create(setup_, folder_, *roles.store, display_, clock_,
                                               std::move(recorder_options)));
  if (const std::string& warning = setup_.data.warning; !warning.empty()) {
    display_.ShowNote(warning);
    roles.recorder->EmitEvent("dataset", {{"reason", warning}});
  }
  return MakeTrainer(roles);
}

absl::Status LocalRun::MakeTrainer(Roles& roles) {
  std::vector<std::shared_ptr<WeightTransport>> transports = {
      std::make_shared<InProcessTransport>(std::vector{roles.subscriber})};
  roles.publisher = std::make_unique<WeightPublisher>(roles.entries, std::move(transports));
  TrainerLoopOptions options =
      MakeLoopOptions(setup_.spec, setup_.store.job, setup_.loss.NeedsReference());
  options.loaded = options_.resume.origin.policy;
  options.checkpoint_root = folder_.File("checkpoints");
  options.damaged = options_.resume.damaged;
  options.scores = [&roles] {
    MutexLock lock(roles.mu);
    return std::exchange(roles.scores, {});
  };
  options.checkpoint_files =
      ModelTextFiles(setup_.model.config, *setup_.model.tokenizer, options.checkpoint_dtype);
  if (Generates(setup_.spec)) {
    options.generated = std::make_shared<const GeneratedFiles>(
        GeneratedFiles::Options{GeneratedFiles::FolderOfRun(options.checkpoint_root), decode_,
                                setup_.spec.output().token_ids()});
  } else {
    FRESHET_ASSIGN_OR_RETURN(roles.trained, MakeJobLearner(setup_.spec, roles.learner));
  }
  roles.trainer =
      std::make_unique<TrainerLoop>(*roles.store, *roles.trained, *roles.publisher, *roles.recorder,
                                    clock_, faults_, std::move(options));
  // Without a checkpoint, save the loaded weights as the first one, so that a resume does not
  // repeat the warm-up and a reference policy survives.
  FRESHET_RETURN_IF_ERROR(
      roles.trainer->Start(/*save_loaded=*/!options_.resume.checkpoint.has_value()));
  return EvaluateWhenDue(roles, roles.trainer->committed(), roles.publisher->staged());
}

// If runs must be bitwise reproducible, no evaluation may be skipped for lack of time, and its row
// must come before the row of the next step.
absl::Status LocalRun::AwaitEvaluationWhenExact(Roles& roles) {
  if (setup_.store.staleness.max > 0 || roles.evaluator == nullptr) return absl::OkStatus();
  roles.evaluation_awaited = true;
  const absl::Cleanup over = [&roles] { roles.evaluation_awaited = false; };
  if (roles.evaluator->AwaitIdle(EvaluationDeadline())) return absl::OkStatus();
  if (StopRequested()) {
    roles.recorder->EmitEvent("evaluation_skipped",
                              {{"version", StrCat(roles.trainer->committed())}});
    return absl::OkStatus();
  }
  roles.recorder->OnEvaluationFailed(
      StrCat("the evaluation before step ", roles.trainer->committed() + 1, " did not end within ",
             absl::FormatDuration(EvaluationDeadline()), "; it continues during training"));
  return absl::OkStatus();
}

absl::Duration LocalRun::EvaluationDeadline() const {
  return kEvaluationDeadline * static_cast<double>(setup_.data.held_out.size());
}

// The sets on which an earlier process evaluated these weights.
std::set<std::string> LocalRun::EvaluatedSets(const WeightSnapshot& weights) const {
  const ResumePoint& resume = options_.resume;
  const bool loaded = weights.manifest.policy.version == resume.origin.policy.version;
  return loaded ? resume.evaluated : std::set<std::string>();
}

absl::Status LocalRun::EvaluateWhenDue(Roles& roles, int64_t step, const WeightSnapshot& weights) {
  if (roles.evaluator == nullptr) return absl::OkStatus();
  const bool last = step == setup_.spec.trainer().steps();
  // FinalEvaluation evaluates the last version once the trainer is done.
  if (last || step % setup_.spec.eval().every_steps() != 0) return absl::OkStatus();
  FRESHET_ASSIGN_OR_RETURN(const bool started,
                           roles.evaluator->Start(weights, EvaluatedSets(weights)));
  if (!started) {
    roles.recorder->EmitEvent("evaluation_skipped", {{"version", StrCat(step)}});
  }
  return absl::OkStatus();
}

void LocalRun::StartThreads(Roles& roles) {
  const std::stop_token stop = roles.stop_workers.get_token();
  roles.threads.emplace_back([&roles, stop] { roles.Fail(roles.feeder->Run(stop)); });
  for (const auto& worker : roles.reward_workers) {
    roles.threads.emplace_back([&worker, stop] { worker->Run(stop); });
  }
  roles.threads.emplace_back([&roles, stop] {
    UseOneTorchThread();
    roles.Fail(roles.rollout->Run(stop));
  });
  roles.trainer_thread = std::jthread([this, &roles] {
    UseOneTorchThread();
    roles.Fail(roles.trainer->Run(roles.stop_trainer.get_token()));
    {
      MutexLock lock(roles.mu);
      roles.trainer_done = true;
    }
    WakeController();
  });
}

void LocalRun::StopThreads(Roles& roles) {
  roles.stop_trainer.request_stop();
  roles.store->Close();
  if (roles.evaluator != nullptr) roles.evaluator->Close();
  if (roles.trainer_thread.joinable()) roles.trainer_thread.join();
  roles.stop_workers.request_stop();
  roles.store->Close();
  roles.threads.clear();
}

// The controller's loop, until the trainer is done or a role has failed.
absl::Status LocalRun::Control(Roles& roles) {
  absl::Time give_up_evaluation = absl::InfiniteFuture();
  while (true) {
    FRESHET_RETURN_IF_ERROR(roles.store->Sweep().status());
    FRESHET_RETURN_IF_ERROR(CheckCalls(setup_.spec, *options_.calls));
    FRESHET_RETURN_IF_ERROR(WatchDeaths(roles));
    FRESHET_RETURN_IF_ERROR(TakeEvaluation(roles));
    FRESHET_RETURN_IF_ERROR(roles.Failure());
    {
      MutexLock lock(roles.mu);
      if (roles.trainer_done) return absl::OkStatus();
    }
    if (StopRequested()) {
      roles.stop_trainer.request_stop();
      if (roles.evaluation_awaited) {
        give_up_evaluation = std::min(give_up_evaluation, clock_.Now() + kEvaluationGrace);
      }
      if (clock_.Now() >= give_up_evaluation && roles.evaluation_awaited) {
        roles.evaluator->Close();
      }
    }
    MutexLock lock(mu_);
    const bool awaited = roles.evaluation_awaited;
    if (!turn_due_) wake_.WaitFor(mu_, awaited ? kAwaitedEvaluationPeriod : kControlPeriod);
    turn_due_ = false;
  }
}

// Logs the groups that have died since the last call, and fails if nothing else happens.
absl::Status LocalRun::WatchDeaths(Roles& roles) {
  FRESHET_ASSIGN_OR_RETURN(const StoreStats stats, roles.store->Stats());
  const int64_t dead = stats.transitions[static_cast<size_t>(GroupState::kDead)];
  if (dead > roles.deaths_logged) {
    FRESHET_ASSIGN_OR_RETURN(roles.dead, roles.store->DeadLetters(DeathWatch::kMostDeadInARow));
    const int64_t told = std::min(
        {dead - roles.deaths_logged, kMostLoggedDeaths, static_cast<int64_t>(roles.dead.size())});
    for (int64_t i = told - 1; i >= 0; --i) {
      const DeadLetter& letter = roles.dead[static_cast<size_t>(i)];
      FRESHET_LOG(Warning) << "event=group_died prompt=" << letter.ordinal
                           << " attempt=" << letter.attempt
                           << " reason=" << LogQuoted(ReasonLine(letter));
    }
    roles.deaths_logged = dead;
  }
  const std::string failure = roles.deaths.Check(stats, roles.dead);
  if (failure.empty()) return absl::OkStatus();
  return FailedPrecondition(failure, LastDeath(*roles.store));
}

absl::Status LocalRun::TakeEvaluation(Roles& roles) {
  if (roles.evaluator == nullptr) return absl::OkStatus();
  return roles.evaluator->TakeResult([this, &roles](absl::StatusOr<EvalMetrics> result) {
    if (result.ok()) {
      if (std::optional<CheckpointScore> score = ScoreOf(*result, setup_.spec)) {
        MutexLock lock(roles.mu);
        roles.scores.push_back(*std::move(score));
      }
      return roles.recorder->RecordEval(*std::move(result));
    }
    roles.recorder->OnEvaluationFailed(Message(result.status()));
    return absl::OkStatus();
  });
}

absl::Status LocalRun::FinalEvaluation(Roles& roles) {
  if (roles.evaluator == nullptr) return absl::OkStatus();
  bool started = false;
  const absl::Time deadline = clock_.Now() + EvaluationDeadline();
  const WeightSnapshot weights = roles.publisher->staged();
  while (clock_.Now() < deadline && !StopRequested()) {
    FRESHET_RETURN_IF_ERROR(roles.Failure());
    FRESHET_RETURN_IF_ERROR(CheckCalls(setup_.spec, *options_.calls));
    FRESHET_RETURN_IF_ERROR(TakeEvaluation(roles));
    if (roles.evaluator->AwaitIdle(absl::ZeroDuration())) {
      if (started) return absl::OkStatus();
      FRESHET_ASSIGN_OR_RETURN(started, roles.evaluator->Start(weights, EvaluatedSets(weights)));
    }
    MutexLock lock(mu_);
    wake_.WaitFor(mu_, absl::Milliseconds(5));
  }
  if (StopRequested()) return absl::OkStatus();
  roles.recorder->OnEvaluationFailed(StrCat("the last evaluation did not end within ",
                                            absl::FormatDuration(EvaluationDeadline())));
  return absl::OkStatus();
}

}  // namespace freshet
