// The unary calls of JobService over gRPC.

#include "controller/api/job_service.h"

#include <map>
#include <utility>

#include "tests/controller/api/job_service_fixture.h"

namespace freshet {
namespace {

using job::v1::JOB_STATE_CANCELLED;
using job::v1::JOB_STATE_PAUSED;
using job::v1::JOB_STATE_RUNNING;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;

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
  EXPECT_EQ(Delete("nobody").code(), absl::StatusCode::kNotFound);
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
  EXPECT_TRUE(Delete("a").ok()) << "as the reply may have been lost";
  EXPECT_EQ(List()->jobs_size(), 0);
}

TEST_F(JobServiceTest, AJobThatItsTeamEndsWithIsDeletedAfterTheTeam) {
  Serve();
  ASSERT_TRUE(Submit("t-a", TinyClusterJob() + "team: t\npool: a\n").ok());
  ASSERT_TRUE(Submit("t-b", TinyClusterJob() + "team: t\npool: b\n").ok());
  const auto succeed = [](JobRecord& record) {
    record.set_state(job::v1::JOB_STATE_SUCCEEDED);
    return absl::OkStatus();
  };
  ASSERT_TRUE(served_->controller().Active()->registry.Change("t-a", succeed).ok());
  const absl::Status refused = Delete("t-a");
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(Message(refused), HasSubstr("job t-b of the team of t-a has not ended"));
  ASSERT_TRUE(Cancel("t-b").ok());
  EXPECT_TRUE(Delete("t-a").ok());
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

}  // namespace
}  // namespace freshet
