#include "trainer/service/training_work.h"

#include <sys/stat.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <map>
#include <thread>
#include <tuple>

#include "base/file.h"
#include "base/str_cat.h"
#include "freshet/job/v1/job_service.pb.h"
#include "runlog/step_metrics.h"
#include "tests/datastore/failing_event_log.h"
#include "tests/trainer/loop/trainer_loop_fixture.h"
#include "trainer/checkpoint/checkpoint_score.h"

namespace freshet {
namespace {

using testing::ElementsAre;
using testing::FieldsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Pair;
using testing::SizeIs;
using Away = FailingEventLog::Away;

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

class RowCounts final : public TrainingListener {
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
  RowCounts rows_;
};

TEST_F(TrainingWorkTest, WritesARowPerStep) {
  Produce(8);
  RunWell();
  EXPECT_THAT(events_.Keys("{job}:events"),
              ElementsAre("step/0/1", "step/0/2", "step/0/3", "step/0/4"));
  EXPECT_THAT(events_.Keys("{job}:samples"), SizeIs(4));
  EXPECT_EQ(rows_.most_waiting, 0);
  EXPECT_TRUE(Has("step-4"));
}

TEST_F(TrainingWorkTest, RowsSayWhatTheRolloutsDidSinceTheStepBefore) {
  Produce(8);
  Generate();
  RunWell();
  EXPECT_THAT(Generation(),
              ElementsAre(Pair(1, FieldsAre(10, 1.5, 0.25)), Pair(2, FieldsAre(20, 3.0, 0.5)),
                          Pair(3, FieldsAre(30, 4.5, 0.75)), Pair(4, FieldsAre(40, 6.0, 1.0))));
}

TEST_F(TrainingWorkTest, AfterARestartTheWorkOfFormerStepsIsNotReportedAgain) {
  Produce(8);
  CommitAsAnother({"weights of step 1", "weights of step 2"});
  Save({0, 1}, DigestOf({0, 1}));
  Generate();
  RunWell();
  // Step 2 is redone; what is generated meanwhile counts for step 3.
  EXPECT_THAT(Generation(),
              ElementsAre(Pair(2, FieldsAre(0, 0.0, 0.0)), Pair(3, FieldsAre(20 + 30, 7.5, 1.25)),
                          Pair(4, FieldsAre(40, 6.0, 1.0))));
}

TEST_F(TrainingWorkTest, AJobThatGeneratesWritesFilesBesideItsCheckpoints) {
  Produce(8);
  RunWell();
  EXPECT_FALSE(std::filesystem::exists(dir_.File("jobs/job/generated"))) << "it trains";
  assign_.mutable_spec()->set_kind("generate");
  assign_.mutable_spec()->mutable_trainer()->set_steps(6);
  Produce(4, /*version=*/4);
  RunWell();
  const auto text = ReadFile(dir_.File("jobs/job/generated/step-00000006.jsonl"), 1 << 20);
  ASSERT_TRUE(text.ok()) << text.status();
  EXPECT_THAT(*text, HasSubstr("\"completion\":\"2 tokens\""));
}

TEST_F(TrainingWorkTest, TellsOfEachCheckpoint) {
  assign_.mutable_spec()->mutable_checkpoint()->set_every_steps(2);
  Produce(8);
  RunWell();
  EXPECT_EQ(rows_.saved, 3);  // of version 0 and of steps 2 and 4
  EXPECT_EQ(rows_.not_saved, 0);
}

TEST_F(TrainingWorkTest, TellsOfACheckpointThatCannotBeWritten) {
  assign_.mutable_spec()->mutable_checkpoint()->set_every_steps(2);
  Produce(8);
  learners_.on_train = [this](int64_t step) {
    if (step != 2) return;
    while (rows_.saved < 1) std::this_thread::yield();  // it is written in parallel to the steps
    std::filesystem::remove_all(Root());
    dir_.Write("jobs/job/checkpoints", "a file");
  };
  EXPECT_FALSE(Run().ok());
  EXPECT_GE(rows_.not_saved, 1);
}

TEST_F(TrainingWorkTest, CheckpointsGetTheScoresOfTheirEvaluationsAndTheBestIsKept) {
  assign_.mutable_spec()->mutable_eval()->set_name("heldout");
  assign_.mutable_spec()->mutable_eval()->set_every_steps(2);
  assign_.mutable_spec()->mutable_checkpoint()->set_every_steps(2);
  assign_.mutable_spec()->mutable_checkpoint()->set_keep_last(1);
  assign_.mutable_spec()->mutable_checkpoint()->set_keep_best(1);
  Produce(8);
  learners_.on_train = [this](int64_t step) {
    if (step != 4) return;
    for (const auto& [name, accuracy] : {std::pair{"other", 0.9}, {"heldout", 0.5}}) {
      EvalMetrics metrics;
      metrics.eval_name = name;
      metrics.eval_accuracy = accuracy;
      metrics.policy_version = 3;  // the engines had gone on
      job::v1::Event event;
      event.set_metrics_json(ToJson(metrics));
      ASSERT_TRUE(
          events_.Append("{job}:events", StrCat("eval/0/3/", name), event.SerializeAsString())
              .ok());
    }
  };
  RunWell();
  EXPECT_TRUE(Has("step-4"));
  EXPECT_EQ(ReadScore(Root() + "/step-2"), 0.5);
  EXPECT_FALSE(Has("step-0"));
}

TEST_F(TrainingWorkTest, RunsTheHookForCheckpointsAndWaitsForTheLast) {
  context_.hook.program =
      dir_.Write("hook", StrCat("#!/bin/sh\necho $FRESHET_VERSION >> ", dir_.File("out"), "\n"));
  ASSERT_EQ(::chmod(context_.hook.program.c_str(), 0700), 0);
  Produce(8);
  CommitAsAnother({"weights of step 1", "weights of step 2"});
  Save({0, 2}, DigestOf({0, 2}));
  learners_.on_train = [this](int64_t) {  // a checkpoint that still waits would be replaced
    while (!dir_.Has("out")) std::this_thread::yield();
  };
  RunWell();
  EXPECT_EQ(ReadFile(dir_.File("out"), 1 << 20).value_or(""), "2\n4\n");
  EXPECT_EQ(rows_.hooks_done, 2);
}

TEST_F(TrainingWorkTest, AHookThatFailsEndsNoJobAndIsANotice) {
  context_.hook.program = "/no/such/program";
  context_.hook.first_pause = absl::Milliseconds(1);
  Produce(8);
  RunWell();
  EXPECT_EQ(rows_.hooks_not_done, 2);
  EXPECT_THAT(events_.Keys("{job}:events"), testing::Contains("checkpoint_hook_failed/0/4"));
}

TEST_F(TrainingWorkTest, TheNoticeOfAHookThatFailsWaitsForTheDatastore) {
  context_.hook.program = "/no/such/program";
  context_.hook.first_pause = absl::Milliseconds(1);
  Produce(8);
  events_.away = Away::kYes;
  events_.back_after = 6;  // calls: one per step and one at the end
  RunWell();
  EXPECT_THAT(events_.Keys("{job}:events"), testing::Contains("checkpoint_hook_failed/0/4"));
}

TEST_F(TrainingWorkTest, RowsWaitUntilTheDatastoreIsBack) {
  Produce(8);
  learners_.on_train = [this](int64_t step) {
    if (step == 2) events_.away = Away::kYes;
    if (step == 4) events_.away = Away::kNo;
  };
  RunWell();
  EXPECT_THAT(events_.Keys("{job}:events"),
              ElementsAre("step/0/1", "step/0/2", "step/0/3", "step/0/4"));
  EXPECT_THAT(events_.Keys("{job}:samples"), SizeIs(4));
  EXPECT_EQ(rows_.most_waiting, 4);
  EXPECT_EQ(rows_.now_waiting, 0);
  EXPECT_EQ(rows_.now_dropped, 0);
}

TEST_F(TrainingWorkTest, RowsWhoseAnswerWasLostAreNotWrittenTwice) {
  Produce(8);
  learners_.on_train = [this](int64_t step) {
    events_.away = step < 4 ? Away::kAnswersLost : Away::kNo;
  };
  RunWell();
  EXPECT_THAT(events_.Keys("{job}:events"),
              ElementsAre("step/0/1", "step/0/2", "step/0/3", "step/0/4"));
  EXPECT_THAT(events_.Keys("{job}:samples"), SizeIs(4));
}

TEST_F(TrainingWorkTest, TheLastRowsAreWaitedForAfterTheLastStep) {
  Produce(8);
  events_.away = Away::kYes;
  events_.back_after = 6;  // calls: one per step and one at the end
  RunWell();
  EXPECT_THAT(events_.Keys("{job}:events"), SizeIs(4));
  EXPECT_EQ(rows_.now_waiting, 0);
}

TEST_F(TrainingWorkTest, ADatastoreThatStaysAwayEndsNoJob) {
  Produce(8);
  events_.away = Away::kYes;
  RunWell();
  EXPECT_EQ(rows_.now_waiting, 8);
  EXPECT_TRUE(Has("step-4"));
}

TEST_F(TrainingWorkTest, GoesOnFromTheNewestCheckpoint) {
  Produce(8);
  CommitAsAnother({"weights of step 1", "weights of step 2"});
  Save({0, 1}, DigestOf({0, 1}));
  Save({0, 2}, DigestOf({0, 2}));
  RunWell();
  EXPECT_THAT(learners_.loaded, ElementsAre("step-2"));
  EXPECT_THAT(Only({"train"}), ElementsAre("train 3", "train 4"));
}

TEST_F(TrainingWorkTest, AfterALossOfStateTheNextWorkGoesOnFromTheNewestCheckpoint) {
  Produce(8);
  CommitAsAnother({"weights of step 1", "weights of step 2"});
  Save({0, 1}, DigestOf({0, 1}));
  learners_.loses_state_at = 3;
  const absl::Status status = Run();
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_EQ(rows_.states_lost, 1);
  EXPECT_THAT(events_.Keys("{job}:events"), testing::Contains(testing::StartsWith("rank_lost/")));
  learners_.loses_state_at = 0;
  RunWell();
  EXPECT_THAT(learners_.loaded, ElementsAre("step-1", "step-1"));
  EXPECT_THAT(Only({"train"}), ElementsAre("train 2", "train 3", "train 2", "train 3", "train 4"));
}

TEST_F(TrainingWorkTest, AnEventNamesEveryRankWhoseLossMadeTheStepFail) {
  Produce(8);
  learners_.loses_ranks_at = 1;
  EXPECT_TRUE(absl::IsUnavailable(Run()));
  EXPECT_EQ(rows_.states_lost, 0);
  EXPECT_THAT(events_.Keys("{job}:events"),
              testing::Contains(testing::StartsWith("rank_lost/")).Times(2));
}

TEST_F(TrainingWorkTest, AReplacedCheckpointIsPassedOverForTheOneBefore) {
  ReplaceFromStepTwo();
  const size_t before = Only({"train"}).size();
  bool set_aside = false;
  learners_.on_train = [&](int64_t) { set_aside |= Has("replaced-step-3") && !Has("step-3"); };
  RunWell();
  EXPECT_THAT(learners_.loaded, ElementsAre("step-3", "step-1"));
  const auto trained = Only({"train"});
  EXPECT_THAT(
      std::vector<std::string>(trained.begin() + static_cast<ptrdiff_t>(before), trained.end()),
      ElementsAre("train 2", "train 3", "train 4"));
  EXPECT_TRUE(set_aside);
  const auto found = FindAllCheckpoints(Root(), "job");
  ASSERT_TRUE(found.ok() && !found->complete.empty());
  EXPECT_EQ(found->complete.front().state.policy.version, 4);
  EXPECT_GE(found->complete.front().state.policy.lineage, 1);
  EXPECT_FALSE(Has("replaced-step-3")) << "no use any more";
}

TEST_F(TrainingWorkTest, ACheckpointAheadOfARestoredStoreIsPassedOver) {
  Produce(8);
  CommitAsAnother({"weights of step 1", "weights of step 2"});
  Save({0, 1}, DigestOf({0, 1}));
  // More than FindAllCheckpoints verifies.
  for (int64_t version = 3; version <= 7; ++version) {
    Save({0, version}, "of what the store has forgotten");
  }
  RunWell();
  EXPECT_THAT(learners_.loaded,
              ElementsAre("step-7", "step-6", "step-5", "step-4", "step-3", "step-1"));
}

TEST_F(TrainingWorkTest, ACheckpointOfOtherSamplesIsPassedOver) {
  Produce(8);
  CommitAsAnother({"weights of step 1", "weights of step 2"});
  Save({0, 1}, DigestOf({0, 1}));
  Save({0, 2}, "of other samples");
  RunWell();
  EXPECT_THAT(learners_.loaded, ElementsAre("step-2", "step-1"));
  EXPECT_TRUE(Has("step-4"));
}

TEST_F(TrainingWorkTest, ADamagedCheckpointIsPassedOverForTheOneBefore) {
  Produce(8);
  CommitAsAnother({"weights of step 1", "weights of step 2"});
  Save({0, 1}, DigestOf({0, 1}));
  Save({0, 2}, DigestOf({0, 2}));
  learners_.damaged = "step-2";
  RunWell();
  EXPECT_THAT(learners_.loaded, ElementsAre("step-2", "step-1"));
}

// Damage is detected before anything is loaded, and does not use up a retained slot.
TEST_F(TrainingWorkTest, ADamagedCheckpointIsSetAsideAndNotCountedAsKept) {
  Produce(8);
  CommitAsAnother({"weights of step 1", "weights of step 2", "weights of step 3"});
  Save({0, 1}, DigestOf({0, 1}));
  for (const int64_t step : {2, 3}) {
    Save({0, step}, "");
    std::fstream file(StrCat(Root(), "/step-", step, "/model.safetensors"),
                      std::ios::in | std::ios::out | std::ios::binary);
    file.put('\x7f');  // keeps the size
  }
  bool set_aside = false;
  learners_.on_train = [&](int64_t) {
    set_aside |= Has("replaced-step-2") && Has("replaced-step-3") && !Has("step-3");
  };
  RunWell();
  EXPECT_THAT(learners_.loaded, ElementsAre("step-1"));
  EXPECT_TRUE(set_aside);
  EXPECT_TRUE(Has("step-4"));
  EXPECT_TRUE(Has("step-1")) << "the other one of the two that are kept";
  EXPECT_FALSE(Has("replaced-step-3"));
}

TEST_F(TrainingWorkTest, WithoutAnOlderOneItFailsAndLeavesAllAsItWas) {
  ReplaceFromStepTwo();
  std::filesystem::remove_all(Root() + "/step-1");
  Save({0, 2}, "d");
  const absl::Status status = Run();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(Message(status), HasSubstr("version 3 of lineage 0 is not where lineage 1"));
  EXPECT_THAT(learners_.loaded, ElementsAre("step-3", "step-2"));
  EXPECT_TRUE(Has("step-3"));
  EXPECT_TRUE(Has("step-2"));
}

TEST_F(TrainingWorkTest, WithoutTheFormerTrainersCheckpointsItIsRefused) {
  Produce(8);
  CommitAsAnother({"weights of step 1", "weights of step 2"});
  const auto opened = store().OpenEpoch("former", {0, 1});
  ASSERT_TRUE(opened.ok());
  ASSERT_TRUE(store().OpenEpoch("former", {0, 2}).ok());  // both become durable; 0 is dropped
  const absl::Status status = Run();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(Message(status), HasSubstr("load version 1 or a newer one"));
}

TEST_F(TrainingWorkTest, ADatastoreThatIsAwayAtTheStartIsWaitedFor) {
  Produce(8);
  const runtime::JobWork* work = nullptr;
  int opened = 0;
  context_.open_store =
      [&](const std::string&) -> absl::StatusOr<std::unique_ptr<TrajectoryStore>> {
    cluster::v1::AssignmentStatus status;
    status.set_state(cluster::v1::AssignmentStatus::STATE_RUNNING);
    work->FillStatus(status);
    EXPECT_EQ(status.state(), cluster::v1::AssignmentStatus::STATE_STARTING);
    EXPECT_EQ(status.waits_for(), opened == 0 ? "" : "the datastore: the connection was closed");
    if (++opened < 20) return absl::UnavailableError("the connection was closed");
    return std::make_unique<ForwardingTrajectoryStore>(store());
  };
  const auto created = TrainingWork::Create(assign_, "t#1", controller_, context_);
  ASSERT_TRUE(created.ok()) << created.status();
  work = created->get();
  const absl::Status status = (*created)->Run(stop_.get_token());
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_EQ(opened, 20);
  EXPECT_TRUE(Has("step-4"));
}

// Models a Redis that rejects the password for a while.
class LockedStore final : public ForwardingTrajectoryStore {
 public:
  using ForwardingTrajectoryStore::ForwardingTrajectoryStore;
  absl::StatusOr<NextBatchReply> NextBatch(int64_t epoch, int64_t step) override {
    if (refusals_-- > 0) return absl::PermissionDeniedError("redis refused EVALSHA: NOAUTH");
    return ForwardingTrajectoryStore::NextBatch(epoch, step);
  }

 private:
  int refusals_ = 5;
};

TEST_F(TrainingWorkTest, APasswordThatIsBeingChangedIsWaitedFor) {
  Produce(8);
  context_.open_store =
      [this](const std::string&) -> absl::StatusOr<std::unique_ptr<TrajectoryStore>> {
    return std::make_unique<LockedStore>(store());
  };
  RunWell();
  EXPECT_TRUE(Has("step-4"));
}

// Loses the first answer to OpenEpoch.
class LosingStore final : public ForwardingTrajectoryStore {
 public:
  using ForwardingTrajectoryStore::ForwardingTrajectoryStore;
  absl::StatusOr<OpenEpochReply> OpenEpochFor(const EpochRequest& request) override {
    auto reply = ForwardingTrajectoryStore::OpenEpochFor(request);
    if (std::exchange(lost_, true)) return reply;
    return absl::UnavailableError("connection reset");
  }

 private:
  bool lost_ = false;
};

TEST_F(TrainingWorkTest, ALostAnswerToOpenEpochOpensOneEpoch) {
  Produce(8);
  context_.open_store =
      [this](const std::string&) -> absl::StatusOr<std::unique_ptr<TrajectoryStore>> {
    return std::make_unique<LosingStore>(store());
  };
  RunWell();
  EXPECT_EQ(store().OpenEpoch("reader", {0, 4})->epoch, 2);
  RunWell();  // another work opens its own epoch
  EXPECT_EQ(store().OpenEpoch("reader", {0, 4})->epoch, 4);
}

// Loses the answer, too; another trainer opens an epoch before the retry.
class OvertakenStore final : public ForwardingTrajectoryStore {
 public:
  OvertakenStore(TrajectoryStore& store, PolicyVersion others)
      : ForwardingTrajectoryStore(store), others_(others) {}
  absl::StatusOr<OpenEpochReply> OpenEpochFor(const EpochRequest& request) override {
    auto reply = ForwardingTrajectoryStore::OpenEpochFor(request);
    if (std::exchange(lost_, true)) return reply;
    EXPECT_TRUE(ForwardingTrajectoryStore::OpenEpochFor({"other", others_, ""}).ok());
    return absl::UnavailableError("connection reset");
  }

 private:
  const PolicyVersion others_;
  bool lost_ = false;
};

TEST_F(TrainingWorkTest, OneThatIsFencedWhileItAsksAgainPassesNoCheckpointOver) {
  Produce(8);
  CommitAsAnother({"weights of step 1", "weights of step 2"});
  Save({0, 1}, DigestOf({0, 1}));
  Save({0, 2}, DigestOf({0, 2}));
  const int64_t before = store().OpenEpoch("reader", {0, 2})->epoch;
  context_.open_store =
      [this](const std::string&) -> absl::StatusOr<std::unique_ptr<TrajectoryStore>> {
    return std::make_unique<OvertakenStore>(store(), PolicyVersion{0, 2});
  };
  EXPECT_EQ(Run().code(), absl::StatusCode::kAborted);
  EXPECT_THAT(learners_.loaded, ElementsAre("step-2"));
  EXPECT_TRUE(Has("step-2"));
  EXPECT_TRUE(store().NextBatch(before + 2, 3).ok()) << "the other one goes on";
}

// Writes to /dev/full fail with ENOSPC.
class FullDisk final : public FaultPoints {
 public:
  explicit FullDisk(std::string root) : root_(std::move(root)) {}
  void Reach(std::string_view point) override {
    if (point != "checkpoint_write") return;
    for (const auto& entry : std::filesystem::directory_iterator(root_)) {
      if (entry.path().extension() != ".tmp") continue;
      std::filesystem::create_symlink("/dev/full", entry.path() / "manifest.json.tmp");
    }
  }

 private:
  std::string root_;
};

TEST_F(TrainingWorkTest, AFullDiskEndsTheWorkAndNothingIsLostWhenThereIsRoom) {
  Produce(8);
  CommitAsAnother({"weights of step 1", "weights of step 2"});
  Save({0, 2}, DigestOf({0, 2}));
  FullDisk disk(Root());
  context_.faults = &disk;
  const absl::Status full = Run();
  EXPECT_EQ(full.code(), absl::StatusCode::kResourceExhausted) << full;
  EXPECT_FALSE(Has("step-4"));
  context_.faults = &points_;
  RunWell();
  EXPECT_THAT(learners_.loaded, ElementsAre("step-2", "step-2"));
  EXPECT_TRUE(Has("step-4"));
  EXPECT_THAT(events_.Keys("{job}:events"), ElementsAre("step/0/3", "step/0/4"));
}

TEST_F(TrainingWorkTest, AnotherFailureOfTheStorePassesNoneOver) {
  Produce(8);
  CommitAsAnother({"weights of step 1", "weights of step 2"});
  Save({0, 1}, DigestOf({0, 1}));
  Save({0, 2}, DigestOf({0, 2}));
  context_.open_store =
      [this](const std::string&) -> absl::StatusOr<std::unique_ptr<TrajectoryStore>> {
    class Broken final : public ForwardingTrajectoryStore {
     public:
      using ForwardingTrajectoryStore::ForwardingTrajectoryStore;
      absl::StatusOr<OpenEpochReply> OpenEpochFor(const EpochRequest&) override {
        return Internal("a script failed");
      }
    };
    return std::make_unique<Broken>(store());
  };
  EXPECT_EQ(Run().code(), absl::StatusCode::kInternal);
  EXPECT_THAT(learners_.loaded, ElementsAre("step-2"));
}

}  // namespace
}  // namespace freshet
