#ifndef FRESHET_TESTS_TRAINER_SERVICE_TRAINING_WORK_FIXTURE_H_
#define FRESHET_TESTS_TRAINER_SERVICE_TRAINING_WORK_FIXTURE_H_

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <variant>
#include <vector>

#include "base/str_cat.h"
#include "freshet/job/v1/job_service.pb.h"
#include "runlog/step_metrics.h"
#include "tests/datastore/failing_event_log.h"
#include "tests/trainer/loop/trainer_loop_fixture.h"
#include "trainer/service/training_work.h"

namespace freshet {

// A weight transport without engines.
class NoEngines final : public WeightTransport {
 public:
  int64_t Publish(const CommittedWeights&) override { return 0; }
};

class FakeWeightPlane final : public TrainerWeightPlane {
 public:
  std::shared_ptr<WeightTransport> transport() override { return std::make_shared<NoEngines>(); }
  std::unique_ptr<WeightStager> MakeStager() override { return std::make_unique<HeapStager>(); }
  void SetMembers(const cluster::v1::Members&) override {}
};

// Creates fake learners; records the loaded checkpoints ("" for the job's own model).
class FakeLearnerFactory final : public LearnerFactory {
 public:
  explicit FakeLearnerFactory(Journal& journal) : journal_(journal) {}
  absl::StatusOr<ModelBundle> Describe(const job::v1::JobSpec&, const DataRoots&) override {
    return ModelBundle();
  }
  absl::StatusOr<StartedLearner> Start(const LearnerStart& start) override {
    const std::string path = start.checkpoint == nullptr ? "" : start.checkpoint->path;
    loaded.push_back(path.substr(path.rfind('/') + 1));
    if (loaded.back() == damaged) return absl::DataLossError("tensor w is missing");
    StartedLearner started;
    auto learner = std::make_unique<FakeLearner>(journal_);
    learner->on_train = on_train;
    learner->loses_state_at = loses_state_at;
    learner->loses_ranks_at = loses_ranks_at;
    started.learner = std::move(learner);
    started.checkpoint_files = {{"config.json", "{}"}};
    started.decode = [](const std::vector<int32_t>& ids) { return StrCat(ids.size(), " tokens"); };
    return started;
  }
  std::vector<std::string> loaded;
  std::string damaged = "none";  // checkpoint that fails to load
  std::function<void(int64_t)> on_train;
  int64_t loses_state_at = 0, loses_ranks_at = 0;

 private:
  Journal& journal_;
};

// Counts what a work reports.
class CountingListener final : public TrainingListener {
 public:
  void OnBegin(const std::string&, const job::v1::JobSpec&,
               std::function<absl::Duration()>) override {}
  void OnStep(const std::string&, const StepMetrics&, const FinishedStep&) override {}
  void OnRows(const std::string&, int64_t waiting, int64_t bound, int64_t dropped) override {
    most_waiting = std::max(most_waiting, waiting);
    now_waiting = waiting;
    now_dropped = dropped;
    EXPECT_LE(waiting, bound);
  }
  void OnRedo(const std::string&, int64_t) override {}
  void OnCheckpoint(const std::string&, bool ok) override { ++(ok ? saved : not_saved); }
  void OnEnd(const std::string&) override {}
  void OnStateLost(const std::string&) override { ++states_lost; }
  int64_t states_lost = 0;
  int64_t most_waiting = 0, now_waiting = 0, now_dropped = 0;
  void OnCheckpointHook(const std::string&, const absl::Status& status) override {
    ++(status.ok() ? hooks_done : hooks_not_done);
  }
  std::atomic<int64_t> saved = 0, not_saved = 0, hooks_done = 0, hooks_not_done = 0;
};

class NoController final : public runtime::ControllerCalls {
 public:
  absl::StatusOr<cluster::v1::FetchRowsReply> FetchRows(
      const cluster::v1::FetchRowsRequest&) override {
    return absl::UnavailableError("no controller");
  }
};

class TrainingWorkTest : public TrainerLoopFixture {
 protected:
  TrainingWorkTest() {
    assign_.set_job_id("job");
    job::v1::JobSpec& spec = *assign_.mutable_spec();
    spec.set_group_size(2);
    spec.set_prompts_per_step(2);
    spec.mutable_trainer()->set_steps(4);
    spec.mutable_weight_sync()->set_every_steps(1);
    spec.mutable_checkpoint()->set_every_steps(100);
    spec.mutable_checkpoint()->set_keep_last(2);
    spec.mutable_output()->set_samples_per_step(1);
    context_.open_store =
        [this](const std::string&) -> absl::StatusOr<std::unique_ptr<TrajectoryStore>> {
      return std::make_unique<ForwardingTrajectoryStore>(store());
    };
    context_.events = &events_;
    context_.learners = &learners_;
    context_.open_weights =
        [](const cluster::v1::Assign&) -> absl::StatusOr<std::unique_ptr<TrainerWeightPlane>> {
      return std::make_unique<FakeWeightPlane>();
    };
    context_.clock = &clock_;
    context_.faults = &points_;
    context_.listener = &rows_;
    context_.state_dir = dir_.path();
    context_.time_scale = 0.001;
  }

  // Runs the work; expects success.
  void RunWell() {
    const absl::Status status = Run();
    ASSERT_TRUE(status.ok()) << status;
  }
  absl::Status Run() {
    auto work = TrainingWork::Create(assign_, "t#1", controller_, context_);
    if (!work.ok()) return work.status();
    return (*work)->Run(stop_.get_token());
  }
  std::string Root() const { return CheckpointRoot(dir_.path(), "job"); }
  bool Has(const std::string& name) const { return std::filesystem::exists(Root() + "/" + name); }
  // A checkpoint of an earlier process. `digest` identifies the samples it was trained on.
  void Save(PolicyVersion policy, const std::string& digest) {
    CheckpointContents contents;
    contents.state.job = "job";
    contents.state.policy = policy;
    contents.state.digest = digest;
    contents.learner = *FakeLearner(journal_).Snapshot();
    contents.files = {{"config.json", "{}"}};
    const auto written = WriteCheckpoint(
        Root(), contents, [] { return absl::OkStatus(); }, points_);
    ASSERT_TRUE(written.ok()) << written.status();
  }
  std::string DigestOf(PolicyVersion policy) {
    const auto opened = store().OpenEpoch("reader", policy);
    EXPECT_TRUE(opened.ok()) << opened.status();
    return opened.ok() ? opened->digest : "";
  }
  // Three steps were committed in lineage 0. A trainer on another machine redid step 2 with
  // different weights, so lineage 1 starts from version 1.
  void ReplaceFromStepTwo() {
    Produce(8);
    CommitAsAnother({"weights of step 1", "of another machine", "of another machine too"});
    Save({0, 1}, DigestOf({0, 1}));
    Save({0, 3}, DigestOf({0, 3}));
    TrainerLoop elsewhere(store(), learner_, publisher_, observer_, clock_, points_, [this] {
      TrainerLoopOptions options = options_;
      options.loaded = {0, 1};
      return options;
    }());
    ASSERT_TRUE(elsewhere.Start(false).ok());
    learners_.loaded.clear();
  }

  // Tokens, idle and swap seconds of each step's row.
  std::map<int64_t, std::tuple<int64_t, double, double>> Generation() {
    std::map<int64_t, std::tuple<int64_t, double, double>> steps;
    const auto page = events_.Read("{job}:events", 0, kMaxEventPage, absl::ZeroDuration());
    for (const StoredEvent& stored : page->events) {
      job::v1::Event event;
      EXPECT_TRUE(event.ParseFromString(stored.value));
      const auto row = ParseMetricsRow(event.metrics_json());
      EXPECT_TRUE(row.ok()) << row.status();
      const auto& m = std::get<StepMetrics>(*row);
      steps[m.step] = {m.tokens_generated, m.rollout_idle_seconds, m.weight_swap_seconds};
    }
    return steps;
  }
  // Engines generate 10 tokens for step 1, 20 for step 2 and so on, each during the training of the
  // step, and 1000 before the trainer starts.
  void Generate() {
    ASSERT_TRUE(store().CountGeneration({1000, absl::Seconds(100), absl::Seconds(50)}).ok());
    learners_.on_train = [this](int64_t step) {
      ASSERT_TRUE(store()
                      .CountGeneration({10 * step, absl::Milliseconds(step * 1500),
                                        absl::Milliseconds(step * 250)})
                      .ok());
    };
  }

  cluster::v1::Assign assign_;
  NoController controller_;
  TrainingContext context_;
  FailingEventLog events_;
  FakeLearnerFactory learners_{journal_};
  CountingListener rows_;
};

}  // namespace freshet

#endif  // FRESHET_TESTS_TRAINER_SERVICE_TRAINING_WORK_FIXTURE_H_
