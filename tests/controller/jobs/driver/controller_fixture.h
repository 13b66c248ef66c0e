#ifndef FRESHET_TESTS_CONTROLLER_JOBS_DRIVER_CONTROLLER_FIXTURE_H_
#define FRESHET_TESTS_CONTROLLER_JOBS_DRIVER_CONTROLLER_FIXTURE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "controller/jobs/driver/controller.h"
#include "controller/jobs/plan/store_setup.h"
#include "controller/jobs/plan/submission.h"
#include "gtest/gtest.h"
#include "runlog/step_metrics.h"
#include "tests/controller/jobs/driver/cluster_fakes.h"

namespace freshet {

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
    ASSERT_TRUE(Becomes(id, job::v1::JOB_STATE_RUNNING));
  }
  void Want(const std::string& id,
            const std::function<absl::Status(JobRecord&, absl::Time)>& change) {
    const auto changed = term_->registry.Change(
        id, [&](JobRecord& record) { return change(record, cluster_.clock.Now()); });
    ASSERT_TRUE(changed.ok()) << changed.status();
    term_->manager.LookAtQueue();
  }
  void Report(HubWorker& worker, cluster::v1::AssignmentStatus::State state,
              const std::string& error = "", absl::StatusCode code = absl::StatusCode::kOk) {
    cluster::v1::AssignmentStatus report;
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

}  // namespace freshet

#endif  // FRESHET_TESTS_CONTROLLER_JOBS_DRIVER_CONTROLLER_FIXTURE_H_
