// The unary calls of JobService over gRPC.

#include "controller/api/job_service.h"

#include <set>
#include <thread>

#include "tests/controller/api/job_service_fixture.h"
#include "tests/runlog/scratch_folder.h"
#include "tests/testing/loopback_server.h"

namespace freshet {
namespace {

using job::v1::JOB_STATE_CANCELLED;
using job::v1::JOB_STATE_PAUSED;
using job::v1::JOB_STATE_PENDING;
using job::v1::JOB_STATE_RUNNING;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::Pair;

TEST_F(JobServiceTest, ARetriedSubmitIsOneJob) {
  Serve();
  ASSERT_TRUE(Submit("a").ok());
  EXPECT_EQ(job_.id(), "a");
  EXPECT_EQ(job_.name(), "tiny");
  EXPECT_EQ(job_.state(), JOB_STATE_PENDING);
  EXPECT_EQ(job_.spec().group_size(), 2);
  EXPECT_EQ(job_.spec().reward().timeout_ms(), 1000);  // filled-in default
  ASSERT_TRUE(Submit("a").ok());
  EXPECT_EQ(job_.id(), "a");
  EXPECT_EQ(List()->jobs_size(), 1);
}

TEST_F(JobServiceTest, SubmitsAtTheSameTimeAreOneJob) {
  Serve();
  std::vector<std::thread> threads;
  std::atomic<int> good{0};
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&] {
      job::v1::SubmitRequest request;
      request.set_job_id("a");
      request.set_yaml(TinyClusterJob());
      job::v1::Job job;
      if (Call(&Stub::Submit, request, job).ok() && job.id() == "a") ++good;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(good, 8);
  EXPECT_EQ(List()->jobs_size(), 1);
}

TEST_F(JobServiceTest, AnIdBelongsToOneSpec) {
  Serve();
  ASSERT_TRUE(Submit("a").ok());
  const absl::Status other = Submit("a", TinyClusterJob() + "seed: 7\n");
  EXPECT_EQ(other.code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(runtime::DetailsOf(other).reason, "ALREADY_EXISTS");
  EXPECT_EQ(runtime::DetailsOf(other).metadata.at("job"), "a");
  EXPECT_EQ(Submit("a", TinyClusterJob(), 5).code(), absl::StatusCode::kAlreadyExists);
}

TEST_F(JobServiceTest, TheServerChoosesIdsThatDiffer) {
  Serve();
  ASSERT_TRUE(Submit("").ok());
  const std::string first = job_.id();
  EXPECT_THAT(first, testing::StartsWith("tiny-"));
  ASSERT_TRUE(Submit("").ok());
  EXPECT_NE(job_.id(), first);
  EXPECT_EQ(List()->jobs_size(), 2);
}

TEST_F(JobServiceTest, EveryFaultOfASpecIsAViolation) {
  Serve();
  const absl::Status status = Submit("a", TinyClusterJob() +
                                              "staleness: {max: -1}\n"
                                              "nonsense: 1\n");
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(runtime::DetailsOf(status).reason, "INVALID_JOB");
  EXPECT_THAT(Fields(status), Contains("staleness.max"));
  EXPECT_THAT(Fields(status), Contains("nonsense"));
  EXPECT_EQ(List()->jobs_size(), 0);
}

TEST_F(JobServiceTest, WhatAClusterCannotDoIsRefusedWithTheField) {
  Serve();
  const std::string yaml = TinyClusterJob() + "weight_sync: {transport: inprocess}\n";
  const absl::Status submitted = Submit("a", yaml);
  EXPECT_EQ(submitted.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(Fields(submitted), ElementsAre("weight_sync.transport"));
  job::v1::ValidateRequest request;
  request.set_yaml(yaml);
  job::v1::ValidateReply reply;
  EXPECT_THAT(Fields(Call(&Stub::Validate, request, reply)), ElementsAre("weight_sync.transport"));
}

TEST_F(JobServiceTest, OptionsThatNobodyHasAreRefusedWithTheirFields) {
  Serve();
  const std::string yaml =
      TinyClusterJob() + "environment: {type: guess_number, options: {low: \"0\"}}\n";
  const absl::Status submitted = Submit("a", yaml);
  EXPECT_EQ(submitted.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(runtime::DetailsOf(submitted).reason, "INVALID_JOB");
  EXPECT_THAT(Fields(submitted), ElementsAre("environment.options.low"));
  job::v1::ValidateRequest request;
  request.set_yaml(TinyClusterJob());
  request.add_overrides("reward.components.bad={type: regex, pattern: \"[\"}");
  job::v1::ValidateReply reply;
  const absl::Status validated = Call(&Stub::Validate, request, reply);
  EXPECT_EQ(validated.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(Fields(validated), ElementsAre("reward.components.bad.pattern"));
  EXPECT_EQ(List()->jobs_size(), 0);
}

TEST_F(JobServiceTest, FilesThatJobsMayNotNameAreRefusedBySubmitAndValidate) {
  const ScratchFolder scratch;
  scratch.Write("users.jsonl", "{\"q\": \"1\", \"answer\": \"1\"}\n");
  cluster_.roots = DataRoots();
  Serve();
  job::v1::ValidateRequest request;
  request.set_yaml(TinyClusterJob());
  request.add_overrides("dataset={type: jsonl, path: " + scratch.File("users.jsonl") +
                        ", prompt: \"{q}\", answer: answer}");
  job::v1::ValidateReply reply;
  const absl::Status validated = Call(&Stub::Validate, request, reply);
  EXPECT_EQ(validated.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(Message(validated), HasSubstr("--data-root"));
  job::v1::SubmitRequest submit;
  submit.set_yaml(request.yaml());
  *submit.mutable_overrides() = request.overrides();
  job::v1::Job job;
  const absl::Status submitted = Call(&Stub::Submit, submit, job);
  EXPECT_EQ(submitted.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(Message(submitted), HasSubstr("--data-root"));
  EXPECT_EQ(List()->jobs_size(), 0);
}

TEST_F(JobServiceTest, FieldsOfASubmitAreChecked) {
  Serve();
  EXPECT_THAT(Fields(Submit("no spaces")), ElementsAre("job_id"));
  EXPECT_THAT(Fields(Submit("a", TinyClusterJob(), 101)), ElementsAre("priority"));
  EXPECT_THAT(Fields(Submit("a", "")), Not(IsEmpty()));
}

TEST_F(JobServiceTest, TooManyJobsAreRefusedForAWhile) {
  JobServiceOptions options;
  options.max_jobs = 2;
  Serve(options);
  ASSERT_TRUE(Submit("a").ok());
  ASSERT_TRUE(Submit("b").ok());
  const absl::Status full = Submit("c");
  EXPECT_EQ(full.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(runtime::DetailsOf(full).reason, "FULL");
  EXPECT_TRUE(runtime::DetailsOf(full).retry_after.has_value());
  EXPECT_TRUE(Submit("b").ok());  // already exists
  ASSERT_TRUE(Cancel("a").ok());
  EXPECT_TRUE(Submit("c").ok());
}

TEST_F(JobServiceTest, ValidateResolvesAndStoresNothing) {
  Serve();
  job::v1::ValidateRequest request;
  request.set_yaml(TinyClusterJob());
  request.add_overrides("trainer.steps=9");
  job::v1::ValidateReply reply;
  ASSERT_TRUE(Call(&Stub::Validate, request, reply).ok());
  EXPECT_EQ(reply.spec().trainer().steps(), 9);
  EXPECT_THAT(reply.yaml(), HasSubstr("timeout_ms: 1000"));
  EXPECT_EQ(List()->jobs_size(), 0);
  // The resolved spec is a valid job.
  request.Clear();
  *request.mutable_spec() = reply.spec();
  job::v1::ValidateReply again;
  ASSERT_TRUE(Call(&Stub::Validate, request, again).ok());
  EXPECT_EQ(again.yaml(), reply.yaml());
}

TEST_F(JobServiceTest, ListPagesOverEveryJobOnceNewestFirst) {
  Serve();
  for (int i = 0; i < 7; ++i) {
    ASSERT_TRUE(Submit(StrCat("job-", i)).ok());
    cluster_.clock.Advance(absl::Seconds(1));
  }
  job::v1::ListRequest request;
  request.set_page_size(3);
  std::vector<std::string> ids;
  std::vector<int> sizes;
  do {
    const auto page = List(request);
    ASSERT_TRUE(page.ok()) << page.status();
    for (const auto& job : page->jobs()) ids.push_back(job.id());
    sizes.push_back(page->jobs_size());
    request.set_page_token(page->next_page_token());
  } while (!request.page_token().empty());
  EXPECT_THAT(sizes, ElementsAre(3, 3, 1));
  EXPECT_THAT(ids, ElementsAre("job-6", "job-5", "job-4", "job-3", "job-2", "job-1", "job-0"));
}

TEST_F(JobServiceTest, ListFilters) {
  Serve();
  ASSERT_TRUE(Submit("a").ok());
  ASSERT_TRUE(Submit("b", "name: other\n" + TinyClusterJob().substr(11)).ok());
  ASSERT_TRUE(Cancel("a").ok());
  job::v1::ListRequest request;
  request.add_states(JOB_STATE_CANCELLED);
  EXPECT_EQ(List(request)->jobs(0).id(), "a");
  EXPECT_EQ(List(request)->jobs_size(), 1);
  request.Clear();
  request.set_name_prefix("oth");
  EXPECT_EQ(List(request)->jobs_size(), 1);
  EXPECT_EQ(List(request)->jobs(0).id(), "b");
  EXPECT_EQ(List(request)->jobs(0).recent_events_size(), 0);
}

TEST_F(JobServiceTest, ListRefusesWhatItDidNotGiveOut) {
  Serve();
  job::v1::ListRequest request;
  request.set_page_token("tomorrow");
  EXPECT_THAT(Fields(List(request).status()), ElementsAre("page_token"));
  request.Clear();
  request.set_page_size(501);
  EXPECT_THAT(Fields(List(request).status()), ElementsAre("page_size"));
}

TEST_F(JobServiceTest, AnUnknownJobIsNotFound) {
  Serve();
  job::v1::GetRequest request;
  request.set_job_id("nobody");
  const absl::Status status = Call(&Stub::Get, request, job_);
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(runtime::DetailsOf(status).reason, "NOT_FOUND");
  EXPECT_EQ(Cancel("nobody").code(), absl::StatusCode::kNotFound);
  EXPECT_TRUE(Delete("nobody").ok());  // idempotent
}

TEST_F(JobServiceTest, GetShowsTheNewestEventsWithTheirCursors) {
  Serve();
  ASSERT_TRUE(Submit("a").ok());
  const auto cursor = [this](int i) { return Get("a").recent_events(i).cursor(); };
  ASSERT_EQ(Get("a").recent_events_size(), 1);
  EXPECT_EQ(cursor(0), "1");
  for (int step = 1; step <= 20; ++step) {
    job::v1::Event event;
    event.set_metrics_json(StrCat("{\"step\":", step, "}"));
    ASSERT_TRUE(cluster_.events->Append(EventStream("a"), "", event.SerializeAsString()).ok());
  }
  // The latest state event, which is older than the tail, followed by the tail.
  const job::v1::Job job = Get("a");
  ASSERT_EQ(job.recent_events_size(), 9);
  EXPECT_TRUE(job.recent_events(0).has_state());
  EXPECT_EQ(job.recent_events(1).metrics_json(), "{\"step\":13}");
  EXPECT_EQ(job.recent_events(8).metrics_json(), "{\"step\":20}");
  EXPECT_EQ(job.recent_events(8).cursor(), "21");
}

TEST_F(JobServiceTest, PausesAndResumesARunningJob) {
  Serve();
  Run("a");
  job::v1::PauseRequest pause;
  pause.set_job_id("a");
  pause.set_reason("lunch");
  ASSERT_TRUE(Call(&Stub::Pause, pause, job_).ok());
  ASSERT_TRUE(Becomes("a", JOB_STATE_PAUSED));
  EXPECT_THAT(Get("a").reason(), HasSubstr("lunch"));
  EXPECT_TRUE(Eventually([&] { return rollout_.paused(rollout_.Work()); }));
  EXPECT_TRUE(Call(&Stub::Pause, pause, job_).ok());
  job::v1::ResumeRequest resume;
  resume.set_job_id("a");
  ASSERT_TRUE(Call(&Stub::Resume, resume, job_).ok());
  ASSERT_TRUE(Becomes("a", JOB_STATE_RUNNING));
  EXPECT_TRUE(Eventually([&] { return !rollout_.paused(rollout_.Work()); }));
}

TEST_F(JobServiceTest, ARefusedResumeLeavesTheTeamAsItIs) {
  Serve();
  ASSERT_TRUE(Submit("t-a", TinyClusterJob() + "team: t\npool: a\n").ok());
  ASSERT_TRUE(Submit("t-b", TinyClusterJob() + "team: t\npool: b\n").ok());
  ASSERT_TRUE(Cancel("t-a").ok());
  ASSERT_TRUE(Becomes("t-b", JOB_STATE_CANCELLED));
  const auto succeed = [](JobRecord& record) {
    record.set_state(job::v1::JOB_STATE_SUCCEEDED);
    return absl::OkStatus();
  };
  ASSERT_TRUE(served_->controller().Active()->registry.Change("t-b", succeed).ok());
  job::v1::ResumeRequest resume;
  resume.set_job_id("t-b");
  EXPECT_EQ(Call(&Stub::Resume, resume, job_).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(Get("t-a").state(), JOB_STATE_CANCELLED);
}

TEST_F(JobServiceTest, AJobWithRaisedCallsIsStillThatOfItsFile) {
  Serve();
  const auto submit = [this](int max_calls) {
    job::v1::SubmitRequest request;
    request.set_job_id("a");
    request.set_yaml(TinyClusterJob());
    request.add_overrides(
        StrCat("reward.components.judge={type: judge, model: m, text: \"{response}\", max_calls: ",
               max_calls, "}"));
    return Call(&Stub::Submit, request, job_);
  };
  ASSERT_EQ(submit(10), absl::OkStatus());
  ASSERT_TRUE(Cancel("a").ok());
  job::v1::ResumeRequest resume;
  resume.set_job_id("a");
  (*resume.mutable_max_calls())["judge"] = 20;
  ASSERT_EQ(Call(&Stub::Resume, resume, job_), absl::OkStatus());
  EXPECT_EQ(submit(10), absl::OkStatus());
  EXPECT_EQ(submit(20), absl::OkStatus());
  EXPECT_EQ(submit(30).code(), absl::StatusCode::kAlreadyExists);
}

TEST_F(JobServiceTest, AJobMustEndBeforeItIsDeleted) {
  Serve();
  ASSERT_TRUE(Submit("a").ok());
  const absl::Status open = Delete("a");
  EXPECT_EQ(open.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(runtime::DetailsOf(open).reason, "WRONG_STATE");
  ASSERT_TRUE(Cancel("a", "a mistake").ok());
  EXPECT_EQ(job_.state(), JOB_STATE_CANCELLED);
  EXPECT_THAT(job_.reason(), HasSubstr("a mistake"));
  EXPECT_TRUE(job_.has_expires());
  EXPECT_TRUE(Delete("a").ok());
  EXPECT_TRUE(Delete("a").ok());
  EXPECT_EQ(List()->jobs_size(), 0);
}

TEST_F(JobServiceTest, DeletingWaitsForTheWorkersAndLeavesNothing) {
  Serve();
  Run("a");
  ASSERT_TRUE(cluster_.events->Append(SampleStream("a"), "", "{}").ok());
  ASSERT_TRUE(Cancel("a").ok());
  // The trainer is still writing its last checkpoint.
  EXPECT_EQ(Delete("a").code(), absl::StatusCode::kFailedPrecondition);
  ASSERT_TRUE(Eventually([&] { return trainer_.Work().empty(); }));
  Beat();
  ASSERT_TRUE(Becomes("a", JOB_STATE_CANCELLED));
  // The rollout has not yet confirmed that it stopped, so it may still write.
  ASSERT_TRUE(
      Eventually([&] { return served_->controller().Active()->manager.Driver("a") == nullptr; }));
  const absl::Status busy = Delete("a");
  EXPECT_EQ(busy.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(Message(busy), HasSubstr("still stopping"));
  EXPECT_TRUE(runtime::DetailsOf(busy).retry_after.has_value());
  ASSERT_TRUE(Eventually([&] {
    Beat();
    return Delete("a").ok();
  }));
  EXPECT_THAT(cluster_.trainers.deleted(), ElementsAre("a"));
  EXPECT_EQ(cluster_.stores.Find("a").status().code(), absl::StatusCode::kNotFound);
  ASSERT_EQ(cluster_.stores.removals().size(), 1U);
  EXPECT_EQ(cluster_.stores.removals()[0].fence, served_->controller().Leader().token);
  EXPECT_GT(cluster_.stores.removals()[0].generation, 0);
  EXPECT_THAT(cluster_.stores.freed(), ElementsAre(Pair("a", true)));  // cancelled: resumable
  for (const std::string& stream : {EventStream("a"), SampleStream("a")}) {
    EXPECT_TRUE(cluster_.events->Read(stream, 0, 10, absl::ZeroDuration())->events.empty());
  }
  EXPECT_EQ(List()->jobs_size(), 0);
}

TEST_F(JobServiceTest, ScalesPools) {
  Serve();
  job::v1::ScaleRequest request;
  request.set_role("rollout");
  request.set_replicas(4);
  job::v1::ScaleReply reply;
  ASSERT_TRUE(Call(&Stub::Scale, request, reply).ok());
  EXPECT_EQ(reply.before(), 0);
  EXPECT_EQ(reply.wanted(), 4);
  request.set_replicas(0);
  ASSERT_TRUE(Call(&Stub::Scale, request, reply).ok());
  EXPECT_EQ(reply.before(), 4);
  request.set_role("trainer");
  EXPECT_THAT(Fields(Call(&Stub::Scale, request, reply)), ElementsAre("role"));
  request.set_role("rollout");
  request.set_replicas(-1);
  EXPECT_THAT(Fields(Call(&Stub::Scale, request, reply)), ElementsAre("replicas"));
}

// Scales workers that the controller does not own, such as pods.
class OtherScaler final : public PoolScaler {
 public:
  absl::StatusOr<int32_t> SetWanted(const std::string& role, const std::string& pool,
                                    int32_t replicas, Surplus) override {
    if (pool == "locked") return FailedPrecondition("kubernetes: HTTP 403: forbidden");
    MutexLock lock(mu_);
    return std::exchange(wanted_[PoolKey(role, pool)], replicas);
  }
  std::map<std::string, int32_t> Wanted() override {
    MutexLock lock(mu_);
    return wanted_;
  }

 private:
  Mutex mu_;
  std::map<std::string, int32_t> wanted_ ABSL_GUARDED_BY(mu_);
};

TEST_F(JobServiceTest, WhereWorkersArePodsNobodyIsToldToDrain) {
  OtherScaler scaler;
  cluster_.scaler = &scaler;
  Serve();
  Run("a");
  job::v1::ScaleRequest request;
  request.set_role("rollout");
  request.set_replicas(3);
  job::v1::ScaleReply reply;
  ASSERT_TRUE(Call(&Stub::Scale, request, reply).ok());
  request.set_replicas(0);
  ASSERT_TRUE(Call(&Stub::Scale, request, reply).ok());
  EXPECT_EQ(reply.before(), 3);
  for (const cluster::v1::Directive& directive : rollout_.stream().All()) {
    EXPECT_FALSE(directive.has_drain());
  }
  job::v1::Cluster cluster;
  ASSERT_TRUE(Call(&Stub::GetCluster, job::v1::GetClusterRequest(), cluster).ok());
  EXPECT_EQ(cluster.wanted().at("rollout"), 0);
  request.set_pool("locked");
  const absl::Status refused = Call(&Stub::Scale, request, reply);
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("HTTP 403: forbidden"));
  served_ = nullptr;  // destroy before the scaler
}

TEST_F(JobServiceTest, ALeaderThatWasDeposedInMidCallSaysThatNothingWasDone) {
  Serve();
  ASSERT_TRUE(Submit("a").ok());
  ASSERT_TRUE(cluster_.records.Fence(served_->controller().Active()->fence + 1).ok());
  job::v1::ScaleRequest scale;
  scale.set_role("rollout");
  job::v1::ScaleReply scaled;
  for (const absl::Status& status : {Submit("b"), Cancel("a"), Call(&Stub::Scale, scale, scaled)}) {
    EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
    EXPECT_EQ(runtime::DetailsOf(status).reason, runtime::kNotLeaderReason);
  }
  // A user error is reported before the lost leadership.
  EXPECT_EQ(Cancel("nobody").code(), absl::StatusCode::kNotFound);
}

TEST_F(JobServiceTest, ShowsClusterAndCheckpoints) {
  Serve();
  Run("a");
  job::v1::Cluster cluster;
  ASSERT_TRUE(Call(&Stub::GetCluster, job::v1::GetClusterRequest(), cluster).ok());
  EXPECT_EQ(cluster.workers_size(), 3);
  EXPECT_EQ(cluster.jobs(0).id(), "a");
  EXPECT_EQ(cluster.leader(), served_->address());
  job::v1::ListCheckpointsRequest request;
  request.set_job_id("a");
  job::v1::ListCheckpointsReply reply;
  ASSERT_TRUE(Call(&Stub::ListCheckpoints, request, reply).ok());
  EXPECT_EQ(reply.checkpoints(0).version(), 3);
}

class StandbyControllerTest : public JobServiceTest {
 protected:
  // Starts a second controller and waits until it knows the leader.
  void StandBy() {
    standby_ = std::make_unique<ServedController>(cluster_, "two");
    ASSERT_TRUE(
        Eventually([&] { return standby_->controller().Leader().address == served_->address(); }));
  }
  std::unique_ptr<ServedController> standby_;
};

// A leader that accepts calls but never answers, like a stopped process.
class HungLeader final : public job::v1::JobService::Service {
 public:
  ~HungLeader() override { released_.Notify(); }
  grpc::Status Pause(grpc::ServerContext* context, const job::v1::PauseRequest*,
                     job::v1::Job*) override {
    return Hang(*context);
  }
  grpc::Status Logs(grpc::ServerContext* context, const job::v1::LogsRequest*,
                    grpc::ServerWriter<job::v1::LogEntry>*) override {
    return Hang(*context);
  }
  std::string address() const { return server_.address(); }
  int calls() const { return calls_; }
  int cancelled() const { return cancelled_; }

 private:
  grpc::Status Hang(grpc::ServerContext& context) {
    ++calls_;
    while (!released_.WaitFor(absl::Milliseconds(5))) {
      if (!context.IsCancelled()) continue;
      ++cancelled_;
      break;
    }
    return grpc::Status::OK;
  }

  Notification released_;
  std::atomic<int> calls_{0};
  std::atomic<int> cancelled_{0};
  const LoopbackServer server_{this};
};

class HungLeaderTest : public JobServiceTest {
 protected:
  HungLeaderTest() {
    EXPECT_TRUE(cluster_.lease.TryAcquire("hung", leader_.address(), absl::Hours(1)).ok());
    standby_ = std::make_unique<ServedController>(cluster_, "two");
    EXPECT_TRUE(
        Eventually([&] { return standby_->controller().Leader().address == leader_.address(); }));
  }
  HungLeader leader_;
  std::unique_ptr<ServedController> standby_;
};

TEST_F(HungLeaderTest, ACallEndsWhenTheStandbyTakesOver) {
  absl::Status status;
  std::thread caller([&] {
    job::v1::PauseRequest pause;
    pause.set_job_id("a");
    job::v1::Job job;
    status = runtime::GrpcToStatus(
        standby_->stub().Pause(runtime::CallWithin(kGuard).get(), pause, &job));
  });
  EXPECT_TRUE(Eventually([&] { return leader_.calls() == 1; }));
  cluster_.clock.Advance(absl::Hours(1));
  caller.join();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
  EXPECT_EQ(runtime::DetailsOf(status).reason, runtime::kLeaderAwayReason);
  EXPECT_TRUE(Eventually([&] { return leader_.cancelled() == 1; }));
}

TEST_F(HungLeaderTest, AStreamEndsWhenTheStandbyTakesOver) {
  absl::Status status;
  std::thread caller([&] {
    const auto context = runtime::CallWithin(kGuard);
    const auto reader = standby_->stub().Logs(context.get(), job::v1::LogsRequest());
    job::v1::LogEntry entry;
    EXPECT_FALSE(reader->Read(&entry));
    status = runtime::GrpcToStatus(reader->Finish());
  });
  EXPECT_TRUE(Eventually([&] { return leader_.calls() == 1; }));
  cluster_.clock.Advance(absl::Hours(1));
  caller.join();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
  EXPECT_EQ(runtime::DetailsOf(status).reason, runtime::kLeaderAwayReason);
}

TEST_F(HungLeaderTest, ACallEndsWhenItsCallerIsGone) {
  const auto context = runtime::CallWithin(kGuard);
  std::thread caller([&] {
    job::v1::PauseRequest pause;
    job::v1::Job job;
    EXPECT_EQ(standby_->stub().Pause(context.get(), pause, &job).error_code(),
              grpc::StatusCode::CANCELLED);
  });
  EXPECT_TRUE(Eventually([&] { return leader_.calls() == 1; }));
  context->TryCancel();
  caller.join();
  EXPECT_TRUE(Eventually([&] { return leader_.cancelled() == 1; }));
}

TEST_F(StandbyControllerTest, PassesCallsOnToTheLeader) {
  Serve();
  StandBy();
  job::v1::SubmitRequest request;
  request.set_job_id("a");
  request.set_yaml(TinyClusterJob());
  job::v1::Job job;
  ASSERT_TRUE(standby_->stub().Submit(runtime::CallWithin(kGuard).get(), request, &job).ok());
  EXPECT_EQ(Get("a").id(), "a");
  const grpc::Status twice =
      standby_->stub().Submit(runtime::CallWithin(kGuard).get(), job::v1::SubmitRequest(), &job);
  EXPECT_EQ(runtime::DetailsOf(runtime::GrpcToStatus(twice)).reason, "INVALID_JOB");
}

TEST_F(StandbyControllerTest, PassesOnTheCheckpointThatTheLeaderSends) {
  Serve();
  Run("a");
  StandBy();
  job::v1::ExportCheckpointRequest wanted;
  wanted.set_job_id("a");
  wanted.set_version(3);
  const auto context = runtime::CallWithin(kGuard);
  const auto reader = standby_->stub().ExportCheckpoint(context.get(), wanted);
  job::v1::FileChunk chunk;
  std::vector<std::string> paths;
  while (reader->Read(&chunk)) paths.push_back(chunk.path());
  EXPECT_TRUE(reader->Finish().ok());
  EXPECT_THAT(paths, ElementsAre("config.json", "model.safetensors"));
  wanted.set_version(9);
  const auto again = runtime::CallWithin(kGuard);
  const auto missing = standby_->stub().ExportCheckpoint(again.get(), wanted);
  EXPECT_FALSE(missing->Read(&chunk));
  EXPECT_EQ(missing->Finish().error_code(), grpc::StatusCode::NOT_FOUND);
}

TEST_F(StandbyControllerTest, PassesOnLogsUntilTheClientHasEnough) {
  const auto own = [lines = std::make_shared<std::atomic<int>>(0)] {
    std::vector<job::v1::LogEntry> entries;
    if (*lines == 3) return entries;
    job::v1::LogEntry& entry = entries.emplace_back();
    entry.set_role("controller");
    entry.set_worker("one");
    entry.set_text(StrCat("line ", ++*lines));
    return entries;
  };
  Serve({}, own);
  StandBy();
  job::v1::LogsRequest request;
  request.set_role("controller");
  request.set_follow(true);
  const auto context = runtime::CallWithin(kGuard);
  const auto reader = standby_->stub().Logs(context.get(), request);
  job::v1::LogEntry entry;
  for (int i = 1; i <= 3; ++i) {
    ASSERT_TRUE(reader->Read(&entry));
    EXPECT_EQ(entry.text(), StrCat("line ", i));
    EXPECT_EQ(entry.worker(), "one");
  }
  context->TryCancel();
  reader->Finish();
}

TEST_F(StandbyControllerTest, ShowsAJobAlsoWhenTheLeaderDoesNotAnswer) {
  Serve();
  ASSERT_TRUE(Submit("a").ok());
  StandBy();
  served_->Unplug();
  job::v1::GetRequest request;
  request.set_job_id("a");
  job::v1::Job job;
  ASSERT_TRUE(standby_->stub().Get(runtime::CallWithin(kGuard).get(), request, &job).ok());
  EXPECT_EQ(job.id(), "a");
  // Calls that need the leader fail with a retriable error.
  job::v1::PauseRequest pause;
  pause.set_job_id("a");
  const absl::Status refused =
      runtime::GrpcToStatus(standby_->stub().Pause(runtime::CallWithin(kGuard).get(), pause, &job));
  EXPECT_EQ(refused.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(runtime::DetailsOf(refused).reason, runtime::kLeaderAwayReason);
  EXPECT_TRUE(runtime::DetailsOf(refused).retry_after.has_value());
}

}  // namespace
}  // namespace freshet
