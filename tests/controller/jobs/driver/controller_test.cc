#include "controller/jobs/driver/controller.h"

#include "base/proto_time.h"
#include "controller/jobs/plan/store_setup.h"
#include "controller/jobs/plan/submission.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runlog/step_metrics.h"
#include "tests/controller/jobs/driver/cluster_fakes.h"

namespace freshet {
namespace {

using cluster::v1::AssignmentStatus;
using job::v1::JOB_STATE_CANCELLED;
using job::v1::JOB_STATE_FAILED;
using job::v1::JOB_STATE_PAUSED;
using job::v1::JOB_STATE_PENDING;
using job::v1::JOB_STATE_RUNNING;
using job::v1::JOB_STATE_STARTING;
using job::v1::JOB_STATE_SUCCEEDED;
using testing::DoubleNear;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;
using testing::SizeIs;

// A controller and its workers. The workers run on the test's thread.
class ControllerTest : public testing::Test {
 protected:
  ControllerTest() { Lead("one"); }
  ~ControllerTest() override {
    if (controller_ != nullptr) controller_->Stop();
  }

  // Starts a controller and waits until it leads.
  void Lead(const std::string& name) {
    controller_ = cluster_.MakeController(name);
    controller_->Start(name + ":7070");
    ASSERT_TRUE(Eventually([this] { return controller_->Active() != nullptr; }));
    term_ = controller_->Active();
  }
  // Replaces the controller by another one, as after a crash.
  void TakeOver(const std::string& name) {
    term_ = nullptr;
    controller_->Stop();
    Lead(name);
  }
  void Join(std::vector<HubWorker*> workers) {
    for (HubWorker* worker : workers) {
      const absl::Status joined = worker->Register(*term_->hub);
      ASSERT_TRUE(joined.ok()) << joined;
    }
  }
  void JoinAll() { Join({&trainer_, &rollout_, &reward_}); }
  void Beat() {
    for (HubWorker* worker : {&trainer_, &rollout_, &reward_}) worker->Beat().IgnoreError();
  }
  job::v1::JobSpec Spec(const std::string& more = "") {
    Submission submission;
    submission.yaml = TinyClusterJob() + more;
    const CheckedSubmission checked = CheckSubmission(submission, DataRoots::Unlimited());
    EXPECT_TRUE(checked.errors.empty()) << FormatConfigErrors(checked.errors);
    return checked.spec;
  }
  void Submit(const std::string& id, const std::string& more = "", int32_t priority = 0) {
    const JobRecord record = NewJobRecord(id, Spec(more), priority, cluster_.clock.Now());
    const absl::Status created = term_->registry.Create(record);
    ASSERT_TRUE(created.ok()) << created;
    term_->manager.LookAtQueue();
  }
  JobRecord Record(const std::string& id) {
    const auto record = controller_->registry().Get(id);
    EXPECT_TRUE(record.ok()) << record.status();
    return record.value_or(JobRecord());
  }
  ::testing::AssertionResult Becomes(const std::string& id, job::v1::JobState state) {
    if (Eventually([&] { return Record(id).state() == state; })) {
      return ::testing::AssertionSuccess();
    }
    return ::testing::AssertionFailure() << "job is " << Record(id).ShortDebugString();
  }
  // Submits a job and waits until it runs on its workers.
  void Run(const std::string& id, const std::string& more = "") {
    JoinAll();
    Submit(id, more);
    ASSERT_TRUE(Eventually([&] {
      return trainer_.Work() != "" && rollout_.Work() != "" && reward_.Work() != "";
    })) << Record(id).ShortDebugString();
    Beat();
    ASSERT_TRUE(Becomes(id, JOB_STATE_RUNNING));
  }
  void Want(const std::string& id,
            const std::function<absl::Status(JobRecord&, absl::Time)>& change) {
    const auto changed = term_->registry.Change(
        id, [&](JobRecord& record) { return change(record, cluster_.clock.Now()); });
    ASSERT_TRUE(changed.ok()) << changed.status();
    term_->manager.LookAtQueue();
  }
  void Report(HubWorker& worker, AssignmentStatus::State state, const std::string& error = "",
              absl::StatusCode code = absl::StatusCode::kOk) {
    AssignmentStatus report;
    report.set_state(state);
    report.set_error(error);
    report.set_error_code(static_cast<int>(code));
    worker.Report(worker.Work(), report);
    ASSERT_TRUE(worker.Beat().ok());
  }
  std::vector<std::string> Notices(const std::string& id, const std::string& kind) {
    std::vector<std::string> texts;
    const auto page = cluster_.events->Read(EventStream(id), 0, 1000, absl::ZeroDuration());
    for (const StoredEvent& stored : page->events) {
      job::v1::Event event;
      event.ParseFromString(stored.value);
      if (event.notice().kind() == kind) texts.push_back(event.notice().text());
    }
    return texts;
  }
  // Reasons of the job's transitions to a state, from its events.
  std::vector<std::string> Reasons(const std::string& id, job::v1::JobState state) {
    std::vector<std::string> reasons;
    const auto page = cluster_.events->Read(EventStream(id), 0, 1000, absl::ZeroDuration());
    for (const StoredEvent& stored : page->events) {
      job::v1::Event event;
      event.ParseFromString(stored.value);
      if (event.state().state() == state) reasons.push_back(event.state().reason());
    }
    return reasons;
  }
  std::shared_ptr<TrajectoryStore> Store(const std::string& id) {
    auto store = cluster_.stores.Find(id);
    EXPECT_TRUE(store.ok()) << store.status();
    return *store;
  }
  // Leases a group as the rollout process would.
  absl::StatusOr<LeaseReply> Lease(const std::string& id) {
    return Store(id)->LeasePrompts({rollout_.lease_name(), "", {0, 0}, 1});
  }
  // Answers the rows of an evaluation as the rollout process would, repeating the call.
  EvaluationState AnswerRows(
      const cluster::v1::Evaluate& evaluate,
      const google::protobuf::RepeatedPtrField<trajectory::v1::DatasetRow>& rows) {
    EvaluationStore& store = Store("a")->evaluations();
    Response response;
    response.response_ids = {1, 2, 3};
    std::vector<EvaluationAnswer> answers;
    for (const auto& row : rows) {
      Prompt prompt;
      prompt.attributes = {row.attributes().begin(), row.attributes().end()};
      answers.push_back({std::ssize(answers), std::make_shared<const Prompt>(std::move(prompt)),
                         std::make_shared<const Response>(response), ""});
    }
    const PolicyVersion policy{evaluate.policy().lineage(), evaluate.policy().version()};
    for (int i = 0; i < 2; ++i) {
      EXPECT_EQ(store.PutAnswers(evaluate.evaluation_id(), policy, answers), absl::OkStatus());
    }
    const auto state = store.Read(evaluate.evaluation_id());
    EXPECT_TRUE(state.ok()) << state.status();
    return state.value_or(EvaluationState());
  }
  // Scores all answers as the reward worker would: 0 for the one whose expected answer is `wrong`,
  // 1 for the others.
  void ScoreRows(const std::string& wrong) {
    EvaluationStore& store = Store("a")->evaluations();
    const auto rows = store.LeaseRows(Task::kScore, reward_.lease_name(), 100);
    ASSERT_TRUE(rows.ok()) << rows.status();
    for (const RowLease& row : *rows) {
      const double reward = row.sample.prompt->attributes.at("answer") == wrong ? 0 : 1;
      const FieldValues score{std::make_shared<const Score>(Score{reward, {{"exact", reward}}})};
      EXPECT_EQ(store.PutFields(Task::kScore, row.token, score), absl::OkStatus());
    }
  }
  // Version and accuracy of the job's evaluation rows.
  std::vector<std::pair<int64_t, double>> EvaluationMetrics(const std::string& id) {
    std::vector<std::pair<int64_t, double>> rows;
    const auto page = cluster_.events->Read(EventStream(id), 0, 1000, absl::ZeroDuration());
    for (const StoredEvent& stored : page->events) {
      job::v1::Event event;
      event.ParseFromString(stored.value);
      if (!event.has_metrics_json()) continue;
      const auto row = ParseMetricsRow(event.metrics_json());
      if (!row.ok()) continue;
      if (const auto* metrics = std::get_if<EvalMetrics>(&*row)) {
        rows.emplace_back(metrics->policy_version, metrics->eval_accuracy);
      }
    }
    return rows;
  }

  FakeCluster cluster_;
  std::unique_ptr<Controller> controller_;
  std::shared_ptr<ControllerTerm> term_;
  HubWorker trainer_{cluster::v1::ROLE_TRAINER, "t0"};
  HubWorker rollout_{cluster::v1::ROLE_ROLLOUT, "r0"};
  HubWorker reward_{cluster::v1::ROLE_REWARD, "w0"};
};

TEST_F(ControllerTest, AJobWaitsForItsWorkersAndSaysSo) {
  Submit("a");
  EXPECT_TRUE(
      Eventually([&] { return Record("a").reason() == "waits for a trainer: 0 of 1 ready"; }));
  Join({&trainer_});
  EXPECT_TRUE(Eventually(
      [&] { return Record("a").reason() == "waits for rollouts: 0 ready in pool default"; }));
  Join({&rollout_, &reward_});
  EXPECT_TRUE(Becomes("a", JOB_STATE_STARTING));
}

TEST_F(ControllerTest, EverybodyIsToldWhatTheyNeed) {
  rollout_.set_site("eu");
  Run("a");
  const cluster::v1::Assign& assign = rollout_.assign(rollout_.Work());
  EXPECT_EQ(assign.job_id(), "a");
  EXPECT_EQ(assign.spec().trainer().steps(), 4);
  EXPECT_THAT(assign.model().config_json(), HasSubstr("hidden_size"));
  EXPECT_EQ(assign.longest_prompt_tokens(), 6) << "NN+NN=";
  EXPECT_FALSE(assign.resume());
  EXPECT_TRUE(Eventually([&] {
    const cluster::v1::Members members = trainer_.assign(trainer_.Work()).members();
    return members.rollouts_size() == 1 && members.rollouts(0).address() == "r0:1" &&
           members.rollouts(0).site() == "eu" && members.trainer().worker() == "t0";
  }));
}

TEST_F(ControllerTest, PromptsAreFedAndNotLost) {
  Run("a");
  const auto store = Store("a");
  EXPECT_TRUE(Eventually([&] { return store->Stats()->queued_prompts == 1024; }));
}

TEST_F(ControllerTest, ABadModelFailsTheJobWithItsReason) {
  cluster_.trainers.Fail(InvalidArgument("model.path: no such directory"));
  JoinAll();
  Submit("a");
  ASSERT_TRUE(Becomes("a", JOB_STATE_FAILED));
  EXPECT_EQ(Record("a").reason(), "model.path: no such directory");
  EXPECT_TRUE(Record("a").has_expires());
}

TEST_F(ControllerTest, ATrainerThatIsNotReachedIsAskedAgain) {
  cluster_.trainers.Fail(absl::UnavailableError("refused"));
  JoinAll();
  Submit("a");
  ASSERT_TRUE(Becomes("a", JOB_STATE_STARTING));
  cluster_.trainers.Fail(absl::OkStatus());
  EXPECT_TRUE(Eventually([&] {
    cluster_.clock.Advance(absl::Milliseconds(1));
    return rollout_.Work() != "";
  }));
}

TEST_F(ControllerTest, ADoneTrainerEndsTheJob) {
  Run("a");
  Report(trainer_, AssignmentStatus::STATE_DONE);
  ASSERT_TRUE(Becomes("a", JOB_STATE_SUCCEEDED));
  EXPECT_EQ(Record("a").reason(), "all 4 steps are done and saved");
  EXPECT_TRUE(Record("a").counts_at_end().groups().contains("queued"));
  EXPECT_TRUE(Record("a").counts_at_end().curated().contains("skipped"));
  ASSERT_TRUE(Eventually([&] { return cluster_.stores.freed().contains("a"); }));
  EXPECT_FALSE(cluster_.stores.freed().at("a"));  // not resumable
  EXPECT_TRUE(Eventually([&] { return trainer_.Work() == "" && rollout_.Work() == ""; }));
}

TEST_F(ControllerTest, AnErrorOfTheTrainerThatWillNotPassEndsTheJob) {
  Run("a");
  Report(trainer_, AssignmentStatus::STATE_FAILED, "bad checkpoint", absl::StatusCode::kDataLoss);
  ASSERT_TRUE(Becomes("a", JOB_STATE_FAILED));
  EXPECT_EQ(Record("a").reason(), "trainer t0: bad checkpoint");
}

TEST_F(ControllerTest, AnErrorOfAnotherWorkerBeginsItsWorkAnew) {
  Run("a");
  int failures = 0;
  for (HubWorker* worker : {&rollout_, &reward_, &rollout_}) {
    const std::string id = worker->Work();
    Report(*worker, AssignmentStatus::STATE_FAILED, "std::bad_alloc", absl::StatusCode::kInternal);
    ASSERT_TRUE(Eventually([&] {
      cluster_.clock.Advance(absl::Milliseconds(1));
      Beat();
      return worker->Work() != "" && worker->Work() != id;
    }));
    EXPECT_EQ(Record("a").state(), JOB_STATE_RUNNING);
    ++failures;
    ASSERT_TRUE(Eventually(
        [&] { return Notices("a", "worker_failed").size() == static_cast<size_t>(failures); }));
    EXPECT_THAT(Notices("a", "worker_failed").back(),
                HasSubstr(StrCat(worker->name(), ": std::bad_alloc")));
  }
}

TEST_F(ControllerTest, AWorkerWhoseWorkFailsIsNamedUntilItBeginsAnew) {
  Run("a");
  Report(rollout_, AssignmentStatus::STATE_FAILED, "std::bad_alloc", absl::StatusCode::kInternal);
  const auto driver = term_->manager.Driver("a");
  ASSERT_NE(driver, nullptr);
  EXPECT_TRUE(Eventually([&] {
    return driver->Live().waits_for.find("rollout r0: std::bad_alloc") != std::string::npos;
  }));
}

TEST_F(ControllerTest, ARoleWhoseWorkersAllFailForGoodEndsTheJob) {
  Run("a");
  EXPECT_TRUE(Eventually([&] {
    cluster_.clock.Advance(absl::Milliseconds(50));
    if (reward_.Work() != "") {
      AssignmentStatus report;
      report.set_state(AssignmentStatus::STATE_FAILED);
      report.set_error("no such scorer");
      report.set_error_code(static_cast<int>(absl::StatusCode::kInvalidArgument));
      reward_.Report(reward_.Work(), report);
    }
    Beat();
    return Record("a").state() == JOB_STATE_FAILED;
  }));
  EXPECT_THAT(Record("a").reason(), HasSubstr("each reward worker failed 8 times"));
  EXPECT_THAT(Record("a").reason(), HasSubstr("no such scorer"));
}

TEST_F(ControllerTest, AJobThatNeedsACallTooManyFailsAndGoesOnWithMore) {
  job::v1::JobSpec spec = Spec("");
  auto& [name, component] = *spec.mutable_reward()->mutable_components()->begin();
  component.set_max_calls(1);
  JoinAll();
  ASSERT_TRUE(term_->registry.Create(NewJobRecord("a", spec, 0, cluster_.clock.Now())).ok());
  term_->manager.LookAtQueue();
  const auto runs = [this] {
    Beat();
    return Record("a").state() == JOB_STATE_RUNNING;
  };
  ASSERT_TRUE(Eventually(runs));
  EXPECT_TRUE(*Store("a")->calls().Spend(name, 1));
  EXPECT_FALSE(*Store("a")->calls().Spend(name, 1));
  ASSERT_TRUE(Becomes("a", JOB_STATE_FAILED));
  EXPECT_EQ(Record("a").reason(), StrCat("reward.components.", name,
                                         ".max_calls: all 1 calls are used; raise it and resume"));
  ASSERT_TRUE(Eventually([&] {
    Beat();
    return trainer_.Work() == "" && rollout_.Work() == "" && reward_.Work() == "";
  }));
  Want("a", [&name = name](JobRecord& record, absl::Time now) {
    google::protobuf::Map<std::string, int64_t> raised;
    raised[name] = 2;
    const absl::Status status = RaiseMaxCalls(record, raised);
    return status.ok() ? WantResumed(record, now) : status;
  });
  ASSERT_TRUE(Eventually(runs));
  EXPECT_EQ(reward_.assign(reward_.Work()).spec().reward().components().at(name).max_calls(), 2);
  EXPECT_TRUE(*Store("a")->calls().Spend(name, 2));
  EXPECT_FALSE(*Store("a")->calls().Spend(name, 2));
  ASSERT_TRUE(Becomes("a", JOB_STATE_FAILED));
  EXPECT_THAT(Record("a").reason(), HasSubstr("all 2 calls are used"));
}

TEST_F(ControllerTest, ATrainerThatFailsAgainAndAgainEndsTheJob) {
  Run("a");
  EXPECT_TRUE(Eventually([&] {
    cluster_.clock.Advance(absl::Milliseconds(50));
    if (trainer_.Work() != "") {
      AssignmentStatus report;
      report.set_state(AssignmentStatus::STATE_FAILED);
      report.set_error("lineage differs");
      report.set_error_code(static_cast<int>(absl::StatusCode::kAborted));
      trainer_.Report(trainer_.Work(), report);
    }
    Beat();
    return Record("a").state() == JOB_STATE_FAILED;
  }));
  EXPECT_THAT(Record("a").reason(), HasSubstr("lineage differs (8 times in a row"));
}

TEST_F(ControllerTest, AJobRunsWhoseStartWasWrittenWithoutAnAnswer) {
  cluster_.records.lost_starts = 1;
  JoinAll();
  Submit("a");
  ASSERT_TRUE(Eventually([&] { return cluster_.records.refused_lists > 0; }));
  EXPECT_EQ(term_->reservations.HolderOf(Reservations::Trainer("t0")), "a")
      << "no other job may take it";
  EXPECT_EQ(term_->reservations.HolderOf(Reservations::Pool("default")), "a");
  cluster_.records.unlisted = false;
  ASSERT_TRUE(Eventually([&] { return trainer_.Work() != "" && rollout_.Work() != ""; }));
  Beat();
  ASSERT_TRUE(Becomes("a", JOB_STATE_RUNNING));
  EXPECT_EQ(term_->reservations.HolderOf(Reservations::Trainer("t0")), "a");
}

TEST_F(ControllerTest, AJobWhoseStartWasNotWrittenKeepsNothingFromItself) {
  cluster_.records.refused_starts = 1;
  Run("a");
  EXPECT_EQ(cluster_.records.refused_starts, 0);
}

TEST_F(ControllerTest, WhoeverScalesThePoolsSaysHowManyAreWanted) {
  class FiveEngines final : public PoolScaler {
   public:
    absl::StatusOr<int32_t> SetWanted(const std::string&, const std::string&, int32_t,
                                      Surplus) override {
      return 5;
    }
    std::map<std::string, int32_t> Wanted() override { return {{"rollout", 5}}; }
  } scaler;
  cluster_.scaler = &scaler;
  TakeOver("two");
  Join({&rollout_});
  EXPECT_TRUE(Eventually([&] {
    cluster_.clock.Advance(absl::Milliseconds(100));
    rollout_.Beat().IgnoreError();
    const auto pool = term_->pools.Find("default");
    return pool.has_value() && pool->ready == 1 && pool->wanted == 5;
  }));
  ASSERT_TRUE(term_->hub->Deregister("r0", rollout_.epoch()).ok());
  EXPECT_TRUE(Eventually([&] {
    cluster_.clock.Advance(absl::Milliseconds(100));
    const auto pool = term_->pools.Find("default");
    return pool.has_value() && pool->ready == 0 && pool->wanted == 5;
  })) << "none is left, and they are wanted all the same";
  controller_->Stop();
  term_ = nullptr;
}

TEST_F(ControllerTest, TwoJobsTakeTurns) {
  Run("a");
  Submit("b");
  EXPECT_TRUE(Eventually(
      [&] { return Record("b").reason() == "waits for a trainer: 0 of 1 free, taken by a"; }));
  Report(trainer_, AssignmentStatus::STATE_DONE);
  ASSERT_TRUE(Becomes("a", JOB_STATE_SUCCEEDED));
  EXPECT_TRUE(Eventually([&] {
    Beat();
    return trainer_.Work().starts_with("b/") && rollout_.Work().starts_with("b/");
  }));
  EXPECT_NE(Store("a").get(), Store("b").get());
}

TEST_F(ControllerTest, TheMoreUrgentJobIsNext) {
  Run("a");
  Submit("later", "", 0);
  Submit("urgent", "", 7);
  Report(trainer_, AssignmentStatus::STATE_DONE);
  ASSERT_TRUE(Becomes("urgent", JOB_STATE_STARTING));
  EXPECT_EQ(Record("later").state(), JOB_STATE_PENDING);
}

TEST_F(ControllerTest, APauseReachesTheWorkersAndAResumeToo) {
  Run("a");
  Want("a", [](JobRecord& r, absl::Time now) { return WantPaused(r, "lunch", now); });
  ASSERT_TRUE(Becomes("a", JOB_STATE_PAUSED));
  EXPECT_EQ(Record("a").reason(), "paused on request: lunch");
  EXPECT_TRUE(Eventually(
      [&] { return rollout_.paused(rollout_.Work()) && trainer_.paused(trainer_.Work()); }));
  Want("a", WantResumed);
  ASSERT_TRUE(Becomes("a", JOB_STATE_RUNNING));
  EXPECT_TRUE(Eventually([&] { return !rollout_.paused(rollout_.Work()); }));
}

TEST_F(ControllerTest, ACancelLetsTheTrainerSaveFirst) {
  Run("a");
  Want("a", [](JobRecord& r, absl::Time now) { return WantCancelled(r, "enough", now); });
  ASSERT_TRUE(Eventually([&] { return trainer_.Work() == ""; }));
  // The trainer has not yet confirmed that it stopped.
  EXPECT_EQ(Record("a").state(), JOB_STATE_RUNNING);
  EXPECT_THAT(Record("a").reason(), HasSubstr("is being cancelled"));
  ASSERT_TRUE(trainer_.Beat().ok());
  ASSERT_TRUE(Becomes("a", JOB_STATE_CANCELLED));
  EXPECT_EQ(Record("a").reason(), "cancelled on request: enough");
  EXPECT_TRUE(Eventually([&] { return rollout_.Work() == ""; }));
}

TEST_F(ControllerTest, ACancelDoesNotWaitForEver) {
  Run("a");
  Want("a", [](JobRecord& r, absl::Time now) { return WantCancelled(r, "", now); });
  ASSERT_TRUE(Eventually([&] { return trainer_.Work() == ""; }));
  EXPECT_TRUE(Eventually([&] {
    cluster_.clock.Advance(absl::Seconds(1));
    rollout_.Beat().IgnoreError();
    return Record("a").state() == JOB_STATE_CANCELLED;
  }));
}

TEST_F(ControllerTest, ACancelledJobCanBeResumedOnItsTrainer) {
  Run("a");
  Want("a", [](JobRecord& r, absl::Time now) { return WantCancelled(r, "", now); });
  ASSERT_TRUE(Eventually([&] {
    Beat();
    return Record("a").state() == JOB_STATE_CANCELLED;
  }));
  Want("a", WantResumed);
  ASSERT_TRUE(Eventually([&] {
    Beat();
    return trainer_.Work() != "" && trainer_.assign(trainer_.Work()).resume();
  }));
  EXPECT_EQ(Record("a").runs(), 2);
}

TEST_F(ControllerTest, ALostRolloutsLeasesReturnAndItRejoins) {
  Run("a");
  const auto store = Store("a");
  ASSERT_TRUE(Eventually([&] { return store->Stats()->queued_prompts > 0; }));
  ASSERT_EQ(Lease("a")->leases.size(), 1U);
  const int64_t before = store->Stats()->leases_expired;
  // Only the rollout stops sending heartbeats.
  ASSERT_TRUE(Eventually([&] {
    cluster_.clock.Advance(absl::Milliseconds(20));
    trainer_.Beat().IgnoreError();
    reward_.Beat().IgnoreError();
    return rollout_.stream().finished();
  }));
  EXPECT_TRUE(Eventually([&] { return store->Stats()->leases_expired == before + 1; }));
  EXPECT_EQ(Lease("a").status().code(), absl::StatusCode::kFailedPrecondition) << "fenced";
  EXPECT_TRUE(Eventually([&] { return Notices("a", "worker_lost").size() == 1; }));
  EXPECT_THAT(Notices("a", "worker_lost")[0], HasSubstr("rollout r0 is lost: silent for"));

  const int64_t epoch = rollout_.epoch();
  // It may receive its new work as soon as it has joined.
  const std::string former = rollout_.Work();
  Join({&rollout_});
  EXPECT_GT(rollout_.epoch(), epoch);
  EXPECT_TRUE(Eventually([&] { return rollout_.Work() != former && rollout_.Work() != ""; }));
  EXPECT_TRUE(Lease("a").ok());
  EXPECT_EQ(Record("a").state(), JOB_STATE_RUNNING);
}

TEST_F(ControllerTest, ALostTrainersJobWaitsAndGoesOn) {
  Run("a");
  const std::string work = trainer_.Work();
  ASSERT_TRUE(Eventually([&] {
    cluster_.clock.Advance(absl::Milliseconds(20));
    rollout_.Beat().IgnoreError();
    reward_.Beat().IgnoreError();
    return trainer_.stream().finished();
  }));
  const auto driver = term_->manager.Driver("a");
  ASSERT_NE(driver, nullptr);
  EXPECT_TRUE(Eventually(
      [&] { return driver->Live().waits_for.find("trainer t0 is lost") != std::string::npos; }));
  // The trainer was only slow: the same process resumes the same work.
  Join({&trainer_});
  EXPECT_TRUE(Eventually([&] {
    Beat();
    return driver->Live().waits_for.find("lost") == std::string::npos;
  }));
  EXPECT_EQ(trainer_.Work(), work);
  EXPECT_EQ(trainer_.unassigned(), 0);
  // A new process gets new work.
  HubWorker again(cluster::v1::ROLE_TRAINER, "t0", "two");
  Join({&again});
  EXPECT_TRUE(Eventually([&] { return again.Work() != "" && again.Work() != work; }));
  EXPECT_EQ(Record("a").state(), JOB_STATE_RUNNING);
}

TEST_F(ControllerTest, ATrainerThatWasReplacedIsFreeForOthers) {
  Run("a");
  HubWorker other(cluster::v1::ROLE_TRAINER, "t1");
  Join({&other});
  ASSERT_TRUE(Eventually([&] {
    cluster_.clock.Advance(absl::Milliseconds(200));
    rollout_.Beat().IgnoreError();
    reward_.Beat().IgnoreError();
    other.Beat().IgnoreError();
    return other.Work().starts_with("a/");
  }));
  EXPECT_EQ(term_->reservations.HolderOf(Reservations::Trainer("t1")), "a");
  EXPECT_TRUE(Eventually(
      [&] { return term_->reservations.HolderOf(Reservations::Trainer("t0")).empty(); }));
}

TEST_F(ControllerTest, AJobWaitsForItsTrainerWhereNoOtherHasItsCheckpoints) {
  cluster_.other_trainer_after = absl::InfiniteDuration();
  TakeOver("two");
  Run("a");
  HubWorker other(cluster::v1::ROLE_TRAINER, "t1");
  Join({&other});
  ASSERT_TRUE(Eventually([&] {
    cluster_.clock.Advance(absl::Milliseconds(20));
    rollout_.Beat().IgnoreError();
    reward_.Beat().IgnoreError();
    other.Beat().IgnoreError();
    return trainer_.stream().finished();
  }));
  const auto driver = term_->manager.Driver("a");
  ASSERT_TRUE(Eventually(
      [&] { return driver->Live().waits_for.find("trainer t0 is lost") != std::string::npos; }));
  cluster_.clock.Advance(absl::Minutes(3));
  const int reads = cluster_.records.reads;
  ASSERT_TRUE(Eventually([&] {
    rollout_.Beat().IgnoreError();
    reward_.Beat().IgnoreError();
    other.Beat().IgnoreError();
    return cluster_.records.reads > reads + 10;
  }));
  EXPECT_EQ(other.Work(), "");
  EXPECT_EQ(Record("a").trainer(), "t0");
  HubWorker again(cluster::v1::ROLE_TRAINER, "t0", "two");
  Join({&again});
  EXPECT_TRUE(Eventually([&] { return again.Work().starts_with("a/"); }));
}

TEST_F(ControllerTest, ARestartOfTheControllerInterruptsNobody) {
  Run("a");
  const auto store = Store("a");
  ASSERT_TRUE(Eventually([&] { return store->Stats()->queued_prompts == 1024; }));
  ASSERT_EQ(Lease("a")->leases.size(), 1U);
  const std::string trainer = trainer_.Work();
  const std::string rollout = rollout_.Work();
  const int64_t epoch = rollout_.epoch();
  const size_t described = cluster_.trainers.described();
  TakeOver("two");
  EXPECT_TRUE(rollout_.stream().finished());
  JoinAll();
  EXPECT_EQ(rollout_.epoch(), epoch);
  EXPECT_TRUE(Eventually([&] {
    Beat();
    return cluster_.trainers.described() > described &&
           term_->manager.Driver("a")->Live().waits_for != "";
  }));
  EXPECT_TRUE(Eventually([&] { return store->Stats()->queued_prompts == 1024; })) << "fed again";
  EXPECT_EQ(trainer_.Work(), trainer);
  EXPECT_EQ(rollout_.Work(), rollout);
  EXPECT_EQ(trainer_.unassigned() + rollout_.unassigned() + reward_.unassigned(), 0);
  EXPECT_EQ(Record("a").state(), JOB_STATE_RUNNING);
  EXPECT_EQ(store->Stats()->leases_expired, 0);
  // The job can end under the new leader.
  Report(trainer_, AssignmentStatus::STATE_DONE);
  EXPECT_TRUE(Becomes("a", JOB_STATE_SUCCEEDED));
}

// Member lists of a later term have a higher revision, even from the same controller.
TEST_F(ControllerTest, ALeaderThatLeadsAgainIsHeard) {
  Run("a");
  const auto members = [this] {
    const std::string work = trainer_.Work();
    return work.empty() ? cluster::v1::Members() : trainer_.assign(work).members();
  };
  ASSERT_TRUE(Eventually([&] { return members().rollouts_size() == 1; }));
  const int64_t revision = members().revision();
  const int64_t fence = term_->fence;
  cluster_.clock.Advance(absl::Hours(1));  // the leader's lease expires
  ASSERT_TRUE(Eventually([&] {
    term_ = controller_->Active();
    return term_ != nullptr && term_->fence > fence;
  }));
  JoinAll();
  HubWorker other(cluster::v1::ROLE_ROLLOUT, "r1");
  Join({&other});
  EXPECT_TRUE(Eventually([&] { return members().rollouts_size() == 2; }));
  EXPECT_GT(members().revision(), revision);
}

TEST_F(ControllerTest, AWorkerThatDiesDuringATakeoverIsMissed) {
  Run("a");
  const auto store = Store("a");
  ASSERT_TRUE(Eventually([&] { return store->Stats()->queued_prompts > 0; }));
  ASSERT_EQ(Lease("a")->leases.size(), 1U);
  TakeOver("two");
  Join({&trainer_, &reward_});  // the rollout does not rejoin
  EXPECT_TRUE(Eventually([&] {
    cluster_.clock.Advance(absl::Milliseconds(20));
    trainer_.Beat().IgnoreError();
    reward_.Beat().IgnoreError();
    return store->Stats()->leases_expired == 1;
  }));
}

TEST_F(ControllerTest, AStandbyTakesOverAndTheFormerLeaderCanDoNothing) {
  Run("a");
  const std::shared_ptr<ControllerTerm> former = term_;
  auto standby = cluster_.MakeController("two");
  standby->Start("two:7070");
  EXPECT_TRUE(Eventually([&] { return standby->Leader().address == "one:7070"; }));
  EXPECT_EQ(standby->Active(), nullptr);
  controller_->Stop();
  ASSERT_TRUE(Eventually([&] { return standby->Active() != nullptr; }));
  EXPECT_EQ(controller_->Active(), nullptr);
  const auto written = former->registry.Change("a", [](JobRecord& record) {
    record.set_step(99);
    return absl::OkStatus();
  });
  EXPECT_EQ(written.status().code(), absl::StatusCode::kFailedPrecondition);
  // Checked before revoking workers, because the job records do not fence that.
  EXPECT_EQ(former->registry.CheckLead().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE(standby->Active()->registry.CheckLead().ok());
  EXPECT_FALSE(rollout_.Register(*former->hub).ok());
  term_ = nullptr;
  standby->Stop();
}

TEST_F(ControllerTest, AFormerLeaderThatDoesNotKnowItRevokesNobody) {
  Run("a");
  const auto store = Store("a");
  ASSERT_TRUE(Eventually([&] { return store->Stats()->queued_prompts > 0; }));
  // A successor leads and has registered the rollout under an epoch unknown to this leader.
  JobRegistry successor(cluster_.records, *cluster_.events, term_->fence + 1, cluster_.clock);
  ASSERT_TRUE(successor.CheckLead().ok());
  const auto written = successor.Change("a", [](JobRecord& record) {
    for (Assignment& assignment : *record.mutable_assignments()) {
      if (assignment.role() == cluster::v1::ROLE_ROLLOUT) assignment.set_epoch(99);
    }
    return absl::OkStatus();
  });
  ASSERT_TRUE(written.ok()) << written.status();
  const int reads = cluster_.records.reads;
  ASSERT_TRUE(Eventually([&] { return cluster_.records.reads > reads + 10; }));
  EXPECT_TRUE(store->LeasePrompts({LeaseName("r0", 99), "", {0, 0}, 1}).ok());
}

TEST_F(ControllerTest, OfTwoJobsWithOneTrainerTheOneThatStartedFirstKeepsIt) {
  Run("b");
  const int64_t fence = term_->fence;
  controller_->Stop();
  term_ = nullptr;
  // Another job's record names the same trainer and pool. Its id sorts first.
  cluster_.clock.Advance(absl::Seconds(1));
  JobRegistry registry(cluster_.records, *cluster_.events, fence, cluster_.clock);
  JobRecord later = NewJobRecord("a", Spec(), 0, cluster_.clock.Now());
  ASSERT_TRUE(MoveTo(later, JOB_STATE_STARTING, "starts", cluster_.clock.Now()).ok());
  later.set_trainer("t0");
  later.set_pool("default");
  *later.add_assignments() = NewAssignment(later, cluster::v1::ROLE_TRAINER, "t0", trainer_.epoch(),
                                           "one", cluster_.clock.Now());
  ASSERT_TRUE(registry.Create(later).ok());
  Lead("two");
  ASSERT_TRUE(Becomes("a", JOB_STATE_PENDING));
  EXPECT_EQ(Record("a").assignments_size(), 0);
  JoinAll();
  Beat();
  EXPECT_TRUE(Eventually([&] {
    return Record("a").reason() == "waits for trainer t0, which has its files: it works for b";
  }));
  EXPECT_EQ(term_->manager.Driver("a"), nullptr);
  EXPECT_TRUE(trainer_.Work().starts_with("b/"));
  EXPECT_EQ(Record("b").state(), JOB_STATE_RUNNING);
  EXPECT_EQ(Reasons("a", JOB_STATE_PENDING).back(),
            "trainer t0 is that of job b, which started first; waits for its turn");
  // It then starts like any waiting job.
  Report(trainer_, AssignmentStatus::STATE_DONE);
  ASSERT_TRUE(Becomes("b", JOB_STATE_SUCCEEDED));
  EXPECT_TRUE(Becomes("a", JOB_STATE_STARTING));
}

TEST_F(ControllerTest, AStallIsNamedWithinTenSeconds) {
  Run("a");
  // Without rollouts nothing is generated.
  ASSERT_TRUE(term_->hub->Deregister("r0", rollout_.epoch()).ok());
  const absl::Time before = cluster_.clock.Now();
  ASSERT_TRUE(Eventually([&] {
    cluster_.clock.Advance(absl::Milliseconds(100));
    trainer_.Beat().IgnoreError();
    reward_.Beat().IgnoreError();
    // Wait for the driver to start a turn at the current time. One of any two reads is the first
    // read of a turn.
    const int reads = cluster_.records.reads;
    EXPECT_TRUE(Eventually([&] { return cluster_.records.reads >= reads + 2; }));
    return !Notices("a", "stalled").empty();
  }));
  EXPECT_LE(cluster_.clock.Now() - before, absl::Seconds(12));
  EXPECT_THAT(Notices("a", "stalled")[0], HasSubstr("rollout: pool default: 0 rollouts ready"));
  EXPECT_THAT(term_->manager.Driver("a")->Live().waits_for, HasSubstr("rollout"));
}

TEST_F(ControllerTest, EvaluationsAreDirectedScoredAndRecorded) {
  Run("a", "eval: {rows: 3, every_steps: 2}\n");
  rollout_.set_version(0);
  ASSERT_TRUE(Eventually([&] {
    Beat();
    return rollout_.evaluations().size() == 1;
  }));
  const cluster::v1::Evaluate evaluate = rollout_.evaluations()[0];
  EXPECT_EQ(evaluate.policy().version(), 0);
  EXPECT_EQ(evaluate.rows(), 3);
  const auto driver = term_->manager.Driver("a");
  cluster::v1::FetchRowsRequest fetch;
  fetch.set_held_out(true);
  fetch.set_count(10);
  const auto rows = driver->FetchRows(fetch);
  ASSERT_TRUE(rows.ok()) << rows.status();
  EXPECT_EQ(rows->total(), 3);
  const EvaluationState state = AnswerRows(evaluate, rows->rows());
  EXPECT_EQ(state.answered, 3);
  EXPECT_EQ(state.ended, 0);
  EXPECT_EQ(Record("a").evaluated_version(), -1) << "nothing is scored yet";
  ScoreRows("");
  ASSERT_TRUE(Eventually([&] { return Record("a").evaluated_version() == 0; }));
  EXPECT_EQ(Record("a").eval_accuracy(), 1.0);

  // The job waits for the last evaluation.
  Report(trainer_, AssignmentStatus::STATE_DONE);
  ASSERT_TRUE(Eventually([&] { return Record("a").trainer_done(); }));
  EXPECT_EQ(Record("a").state(), JOB_STATE_RUNNING);
  rollout_.set_version(4);
  ASSERT_TRUE(Eventually([&] {
    Beat();
    return rollout_.evaluations().size() == 2;
  }));
  AnswerRows(rollout_.evaluations()[1], rows->rows());
  ScoreRows(rows->rows(0).attributes().at("answer"));
  ASSERT_TRUE(Becomes("a", JOB_STATE_SUCCEEDED));
  EXPECT_NEAR(Record("a").eval_accuracy(), 2.0 / 3, 1e-9);
  EXPECT_THAT(EvaluationMetrics("a"),
              ElementsAre(Pair(0, 1.0), Pair(4, DoubleNear(2.0 / 3, 1e-9))));
}

TEST_F(ControllerTest, AnEvaluationSetThatIsDoneIsNotRepeatedByANewLeader) {
  Run("a", "eval: {rows: 3, every_steps: 2, sets: [{name: one}, {name: two, rows: 2}]}\n");
  rollout_.set_version(0);
  const auto directed = [&](size_t count) {
    return Eventually([&] {
      Beat();
      return rollout_.evaluations().size() == count;
    });
  };
  const auto answer = [&](const cluster::v1::Evaluate& evaluate) {
    cluster::v1::FetchRowsRequest fetch;
    fetch.set_held_out(true);
    fetch.set_count(10);
    fetch.set_eval_set(evaluate.eval_set());
    const auto rows = term_->manager.Driver("a")->FetchRows(fetch);
    ASSERT_TRUE(rows.ok()) << rows.status();
    EXPECT_EQ(rows->total(), evaluate.rows());
    AnswerRows(evaluate, rows->rows());
    ScoreRows("");
  };
  ASSERT_TRUE(directed(1));
  EXPECT_EQ(rollout_.evaluations()[0].eval_set(), "one");
  answer(rollout_.evaluations()[0]);
  ASSERT_TRUE(Eventually([&] { return Record("a").evaluations_size() == 1; }));
  ASSERT_TRUE(directed(2));
  EXPECT_EQ(rollout_.evaluations()[1].eval_set(), "two");
  EXPECT_EQ(Record("a").evaluated_version(), -1) << "of set two nothing is scored yet";

  TakeOver("two");
  JoinAll();
  ASSERT_TRUE(directed(3));
  EXPECT_EQ(rollout_.evaluations()[2].eval_set(), "two");
  answer(rollout_.evaluations()[2]);
  ASSERT_TRUE(Eventually([&] { return Record("a").evaluated_version() == 0; }));
  EXPECT_THAT(EvaluationMetrics("a"), SizeIs(2)) << "one row for each set";
}

TEST_F(ControllerTest, TheTrainerLearnsWhenTheJobStarted) {
  Run("a");
  EXPECT_EQ(trainer_.assign(trainer_.Work()).started().seconds(), Record("a").started().seconds());
}

TEST_F(ControllerTest, ProgressIsReadFromTheTrainersRows) {
  Run("a");
  job::v1::Event event;
  event.set_metrics_json(
      "{\"step\": 3, \"lineage\": 1, \"policy_version\": 3, \"reward_mean\": 0.5}");
  ASSERT_TRUE(
      cluster_.events->Append(EventStream("a"), "step/1/3", event.SerializeAsString()).ok());
  EXPECT_TRUE(Eventually([&] {
    cluster_.clock.Advance(absl::Milliseconds(5));
    return Record("a").step() == 3 && Record("a").reward_mean() == 0.5;
  }));
  // Steps of an older lineage are ignored.
  event.set_metrics_json("{\"step\": 9, \"lineage\": 0, \"reward_mean\": 0.9}");
  ASSERT_TRUE(
      cluster_.events->Append(EventStream("a"), "step/0/9", event.SerializeAsString()).ok());
  ASSERT_TRUE(Eventually([&] {
    cluster_.clock.Advance(absl::Milliseconds(5));
    return Record("a").metrics_cursor() > 0 &&
           Record("a").metrics_cursor() ==
               cluster_.events->Read(EventStream("a"), 0, 1000, absl::ZeroDuration())
                   ->events.back()
                   .cursor;
  }));
  EXPECT_EQ(Record("a").step(), 3);
}

TEST_F(ControllerTest, ATrainersNoticeIsKeptInTheRecord) {
  Run("a");
  job::v1::Event event;
  event.mutable_notice()->set_text("rank 1 was ended");
  const absl::StatusOr<int64_t> cursor =
      cluster_.events->Append(EventStream("a"), "rank_lost/3/1", event.SerializeAsString());
  ASSERT_TRUE(cursor.ok());
  ASSERT_TRUE(Eventually([&] {
    cluster_.clock.Advance(absl::Milliseconds(5));
    return Record("a").metrics_cursor() >= *cursor;
  }));
  const auto kept = Record("a").recent_events();
  EXPECT_EQ(std::ranges::count(kept, "rank_lost/3/1", &cluster::v1::KeyedEvent::key), 1);
}

}  // namespace
}  // namespace freshet
