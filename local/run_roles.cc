#include "local/run_roles.h"

#include <optional>
#include <utility>

#include "base/container_limits.h"
#include "base/status_macros.h"
#include "base/str_cat.h"
#include "dataset/dataset_setup.h"
#include "job/job_kind.h"
#include "local/curation_file.h"
#include "local/local_environments.h"
#include "local/local_services.h"
#include "local/run_summary.h"
#include "model/gpu.h"
#include "rollout/worker/rollout_setup.h"
#include "services/reward/worker/reward_setup.h"
#include "trainer/loop/trainer_setup.h"
#include "trainer/policy_learner_factory.h"
#include "trainer/rank_process.h"
#include "weights/inprocess_transport.h"

namespace freshet {
namespace {

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

ResponseDecoder MakeDecoder(const JobSetup& setup) {
  return [&setup](const std::vector<int32_t>& ids) {
    return setup.model.tokenizer->Decode(ids, /*skip_special=*/true);
  };
}

// Whether the store remembers more than its groups.
bool Curates(const StoreOptions& options) {
  return options.replay.has_value() || options.adaptive.has_value();
}

// Creates the store and its first row in the folder's ledger: from here on a killed run can be
// resumed.
absl::Status MakeStore(const RunContext& run, RunRoles& roles) {
  const ResumePoint& resume = run.options.resume;
  FRESHET_ASSIGN_OR_RETURN(
      roles.store, InMemoryTrajectoryStore::Create(run.setup.store, resume.origin, run.clock));
  if (resume.checkpoint.has_value() && Curates(run.setup.store)) {
    FRESHET_RETURN_IF_ERROR(RestoreCurationFile(resume.checkpoint->path, *roles.store));
  }
  if (resume.origin.resumed) {
    FRESHET_RETURN_IF_ERROR(roles.store->RecordResume(
        resume.origin.epoch + 1, resume.parent_lineage, resume.origin.policy.version,
        resume.checkpoint.has_value() ? resume.checkpoint->manifest_sha256 : ""));
  }
  if (run.setup.data.curriculum != nullptr) {
    run.setup.data.curriculum->Reset();  // of the steps after the checkpoint
    for (const ResumePoint::TaskRewards& step : resume.task_rewards) {
      run.setup.data.curriculum->Observe(step.lineage, step.step, step.rewards);
    }
  }
  FRESHET_ASSIGN_OR_RETURN(LedgerLog ledger, LedgerLog::Open(run.folder.File("ledger.jsonl")));
  FRESHET_ASSIGN_OR_RETURN(const std::vector<LedgerRow> rows,
                           roles.store->ReadLedger(resume.origin.ledger_seq, /*max_rows=*/1));
  if (rows.size() != 1) return Internal("the store's ledger begins with ", rows.size(), " rows");
  roles.ledger_seq = rows.back().seq;
  return ledger.Append(rows);
}

// Loads the initial weights: from the checkpoint, or from the model followed by the warm-up.
absl::Status MakeLearner(const RunContext& run, RunRoles& roles) {
  if (Generates(run.setup.spec)) {
    FRESHET_ASSIGN_OR_RETURN(std::unique_ptr<FrozenLearner> frozen,
                             MakeFrozenLearner(run.setup.spec, run.setup.model));
    run.display.ShowSetup(DescribeSetup(run.setup, run.folder.path(), frozen->num_parameters(),
                                        /*trainer_threads=*/1, run.options.resume.origin));
    roles.entries = frozen->entries();
    roles.trained = std::move(frozen);
    return absl::OkStatus();
  }
  PolicyLearnerOptions options =
      MakeLearnerOptions(run.setup.spec, run.setup.model.config, run.setup.loss,
                         UsableProcessors(ReadContainerLimits()));
  // The setup outlives the learner.
  options.tokenizer = {std::shared_ptr<const Tokenizer>(), run.setup.model.tokenizer.get()};
  FRESHET_ASSIGN_OR_RETURN(roles.learner, PolicyLearner::Create(std::move(options), run.clock));
  run.display.ShowSetup(DescribeSetup(run.setup, run.folder.path(), roles.learner->num_parameters(),
                                      roles.learner->threads(), run.options.resume.origin));
  TrainingRowsOfDataset rows(*run.setup.data.train);
  const std::optional<FoundCheckpoint>& checkpoint = run.options.resume.checkpoint;
  const absl::Time began = run.clock.Now();
  const LearnerStart start{run.setup.spec,
                           DataRoots::Unlimited(),
                           checkpoint.has_value() ? &*checkpoint : nullptr,
                           CheckpointPath(run.folder.File("checkpoints"), 0),
                           rows,
                           [&](int64_t step, int64_t steps, double loss) {
                             const double seconds = absl::ToDoubleSeconds(run.clock.Now() - began);
                             run.display.ShowWarmup({"sft", step, steps, loss, seconds});
                             return !run.stopping();
                           }};
  const absl::Status status =
      LoadWeights(start, run.setup.model, run.setup.loss.NeedsReference(), *roles.learner);
  roles.entries = roles.learner->WeightEntries();
  return run.stopping() && absl::IsCancelled(status) ? absl::OkStatus() : status;
}

absl::Status MakeTrainer(const RunContext& run, RunRoles& roles) {
  std::vector<std::shared_ptr<WeightTransport>> transports = {
      std::make_shared<InProcessTransport>(std::vector{roles.subscriber})};
  roles.publisher = std::make_unique<WeightPublisher>(roles.entries, std::move(transports));
  TrainerLoopOptions options =
      MakeLoopOptions(run.setup.spec, run.setup.store.job, run.setup.loss.NeedsReference());
  options.loaded = run.options.resume.origin.policy;
  options.checkpoint_root = run.folder.File("checkpoints");
  options.damaged = run.options.resume.damaged;
  if (roles.evaluations != nullptr) {
    options.scores = [&roles] { return roles.evaluations->TakeScores(); };
  }
  options.checkpoint_files =
      ModelTextFiles(run.setup.model.config, *run.setup.model.tokenizer, options.checkpoint_dtype);
  if (Curates(run.setup.store)) {
    options.state_file = [&roles] { return MakeCurationFile(*roles.store); };
  }
  if (Generates(run.setup.spec)) {
    options.generated = std::make_shared<const GeneratedFiles>(
        GeneratedFiles::Options{GeneratedFiles::FolderOfRun(options.checkpoint_root),
                                MakeDecoder(run.setup), run.setup.spec.output().token_ids()});
  } else {
    FRESHET_ASSIGN_OR_RETURN(roles.trained, MakeJobLearner(run.setup.spec, roles.learner));
  }
  roles.trainer =
      std::make_unique<TrainerLoop>(*roles.store, *roles.trained, *roles.publisher, *roles.recorder,
                                    run.clock, run.faults, std::move(options));
  // Without a checkpoint, save the loaded weights as the first one, so that a resume does not
  // repeat the warm-up and a reference policy survives.
  FRESHET_RETURN_IF_ERROR(
      roles.trainer->Start(/*save_loaded=*/!run.options.resume.checkpoint.has_value()));
  if (roles.evaluations == nullptr) return absl::OkStatus();
  return roles.evaluations->StartIfDue(roles.trainer->committed(), roles.publisher->staged());
}

}  // namespace

absl::Status LoadLearner(const RunContext& run, RunRoles& roles) {
  FRESHET_RETURN_IF_ERROR(MakeStore(run, roles));
  return MakeLearner(run, roles);
}

absl::Status MakeRoles(const RunContext& run, RunRoles& roles) {
  const JobSpec& spec = run.setup.spec;
  const ResumePoint& resume = run.options.resume;
  FRESHET_ASSIGN_OR_RETURN(roles.engine,
                           NativeEngine::Create(run.setup.model.config, MakeEngineOptions(spec)));
  if (HasAgent(spec)) {
    FRESHET_ASSIGN_OR_RETURN(roles.agent, LocalAgent::Start(run.setup, *roles.engine, run.clock));
  } else if (spec.has_environment()) {
    if (spec.environment().type() == "grpc") {
      roles.environments = ConnectEnvironment(spec.environment(), run.clock);
    } else {
      roles.environments = std::make_unique<LocalEnvironments>(BuiltinEnvironments());
    }
    roles.episodes = std::make_unique<EpisodeRunner>(
        *roles.engine, *roles.environments, run.clock,
        MakeEpisodeText(spec, *run.setup.model.tokenizer), MakeEpisodeOptions(spec));
  }
  RolloutOptions rollout_options =
      MakeRolloutOptions(spec, run.setup.sampling, run.setup.prompts.longest);
  rollout_options.count_period = absl::ZeroDuration();  // costs nothing in memory
  Episodes* episodes = roles.episodes.get();
  GenerationQueue* requests = nullptr;
  if (roles.agent != nullptr) {
    episodes = &roles.agent->episodes();
    requests = &roles.agent->queue();
  }
  roles.rollout =
      std::make_unique<RolloutWorker>(*roles.store, *roles.engine, roles.subscriber, run.clock,
                                      std::move(rollout_options), episodes, requests);
  RewardWorkerOptions reward_options = MakeRewardOptions(spec);
  reward_options.job = run.setup.store.job;
  reward_options.calls = run.options.calls.get();
  std::vector<RowQueue*> scored = {roles.store.get()};
  std::unique_ptr<Evaluator> evaluator;
  if (!run.setup.data.held_out.empty()) {
    scored.push_back(&roles.store->evaluations());
    FRESHET_ASSIGN_OR_RETURN(evaluator, Evaluator::Create(run.setup, roles.store->evaluations(),
                                                          *roles.rollout, run.clock));
  }
  for (RowQueue* queue : scored) {
    roles.reward_workers.push_back(std::make_unique<RewardWorker>(
        *queue, *run.setup.scorer, MakeDecoder(run.setup), reward_options));
  }
  PromptFeederOptions feeder_options = MakeFeederOptions(spec, run.setup.prompts);
  feeder_options.first_attempt = resume.first_attempt;
  feeder_options.start = resume.origin.cursor;
  roles.feeder = std::make_unique<PromptFeeder>(*roles.store, *run.setup.data.train,
                                                MakePromptEncoder(spec, *run.setup.model.tokenizer),
                                                feeder_options);
  RunRecorder::Options recorder_options;
  recorder_options.start = roles.start;
  recorder_options.wall_offset_seconds = resume.wall_seconds;
  recorder_options.first_ledger_seq = roles.ledger_seq;
  recorder_options.rows = run.options.rows;
  recorder_options.status = run.options.status;
  if (run.options.metrics_port > 0) {
    FRESHET_ASSIGN_OR_RETURN(roles.metrics,
                             MetricsServer::Start(run.options.metrics_port, spec, ReadGpuMemory));
    recorder_options.metrics = roles.metrics.get();
  }
  if (evaluator != nullptr) {
    recorder_options.before_step = [&roles] {
      return roles.evaluations->BeforeStep(roles.trainer->committed());
    };
    recorder_options.on_published = [&roles](int64_t step, const WeightSnapshot& weights) {
      return roles.evaluations->StartIfDue(step, weights);
    };
  }
  recorder_options.rollout_waits = [&roles] { return roles.rollout->counters().handed_back; };
  FRESHET_ASSIGN_OR_RETURN(roles.recorder,
                           RunRecorder::Create(run.setup, run.folder, *roles.store, run.display,
                                               run.clock, std::move(recorder_options)));
  if (const std::string& warning = run.setup.data.warning; !warning.empty()) {
    run.display.ShowNote(warning);
    roles.recorder->EmitEvent("dataset", {{"reason", warning}});
  }
  if (evaluator != nullptr) {
    roles.evaluations = std::make_unique<RunEvaluations>(run.setup, resume, std::move(evaluator),
                                                         *roles.recorder, run.clock, run.stopping);
  }
  return MakeTrainer(run, roles);
}

}  // namespace freshet
