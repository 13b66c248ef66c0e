// The status page's view of a cluster, served by a leader and by a standby.

#include "controller/api/controller_status.h"

#include "tests/controller/api/job_service_fixture.h"

namespace freshet {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class ControllerStatusTest : public JobServiceTest {
 protected:
  void StandBy() {
    standby_ = std::make_unique<ServedController>(cluster_, "two");
    ASSERT_TRUE(
        Eventually([&] { return standby_->controller().Leader().address == served_->address(); }));
  }
  void AppendRow(const std::string& id, int step) {
    job::v1::Event event;
    event.set_metrics_json(StrCat("{\"step\":", step, "}"));
    ASSERT_TRUE(
        cluster_.events->Append(EventStream(id), StrCat("step/0/", step), event.SerializeAsString())
            .ok());
  }

  runtime::ChannelCache channels_{runtime::ChannelOptions{}};
  std::unique_ptr<ServedController> standby_;
};

TEST_F(ControllerStatusTest, TheLeaderShowsItsJobsAndWorkers) {
  Serve();
  Run("a");
  ControllerStatus status(served_->controller(), channels_);
  EXPECT_TRUE(status.Identity().leads);
  EXPECT_EQ(status.Identity().leader, served_->address());
  const absl::StatusOr<StatusJobs> jobs = status.List(10);
  ASSERT_TRUE(jobs.ok()) << jobs.status();
  ASSERT_EQ(jobs->jobs.size(), 1U);
  EXPECT_EQ(jobs->jobs[0].id(), "a");
  EXPECT_FALSE(jobs->more);
  EXPECT_EQ(status.Get("a")->state(), job::v1::JOB_STATE_RUNNING);
  EXPECT_EQ(status.Get("none").status().code(), absl::StatusCode::kNotFound);
  const absl::StatusOr<job::v1::Cluster> cluster = status.Cluster();
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  EXPECT_EQ(cluster->workers_size(), 3);
}

TEST_F(ControllerStatusTest, RowsComeOnceInPagesAndEventsOfOtherKindsAreNone) {
  Serve();
  ASSERT_TRUE(Submit("a").ok());
  for (int step = 1; step <= 3; ++step) AppendRow("a", step);
  ControllerStatus status(served_->controller(), channels_);
  std::vector<std::string> rows;
  StatusRows page;
  do {
    absl::StatusOr<StatusRows> next = status.Metrics("a", page.cursor, 2);
    ASSERT_TRUE(next.ok()) << next.status();
    page = *std::move(next);
    rows.insert(rows.end(), page.rows.begin(), page.rows.end());
  } while (page.more);
  EXPECT_THAT(rows, ElementsAre(R"({"step":1})", R"({"step":2})", R"({"step":3})"));
  EXPECT_FALSE(page.gap);
  EXPECT_TRUE(status.Metrics("a", page.cursor, 2)->rows.empty());
  EXPECT_EQ(status.Metrics("none", 0, 2).status().code(), absl::StatusCode::kNotFound);
}

TEST_F(ControllerStatusTest, TheNewestSamplesComeFirst) {
  Serve();
  ASSERT_TRUE(Submit("a").ok());
  for (const char* row : {"{\"uid\":\"1\"}", "{\"uid\":\"2\"}"}) {
    ASSERT_TRUE(cluster_.events->Append(SampleStream("a"), row, row).ok());
  }
  ControllerStatus status(served_->controller(), channels_);
  EXPECT_THAT(*status.Samples("a", 5), ElementsAre("{\"uid\":\"2\"}", "{\"uid\":\"1\"}"));
  EXPECT_THAT(*status.Samples("a", 1), ElementsAre("{\"uid\":\"2\"}"));
}

TEST_F(ControllerStatusTest, AStandbyAsksTheLeaderForTheWorkers) {
  Serve();
  Run("a");
  StandBy();
  ControllerStatus status(standby_->controller(), channels_);
  EXPECT_FALSE(status.Identity().leads);
  EXPECT_EQ(status.Identity().leader, served_->address());
  const absl::StatusOr<job::v1::Cluster> cluster = status.Cluster();
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  EXPECT_EQ(cluster->workers_size(), 3);
  EXPECT_EQ(status.Get("a")->state(), job::v1::JOB_STATE_RUNNING);
}

TEST_F(ControllerStatusTest, AStandbyShowsJobsAlsoWhenTheLeaderDoesNotAnswer) {
  Serve();
  ASSERT_TRUE(Submit("a").ok());
  StandBy();
  served_->Unplug();
  ControllerStatus status(standby_->controller(), channels_);
  EXPECT_EQ(status.Get("a")->id(), "a");
  EXPECT_EQ(status.List(10)->jobs.size(), 1U);
  const absl::Status away = status.Cluster().status();
  EXPECT_FALSE(away.ok());
  EXPECT_THAT(Message(away), HasSubstr(served_->address()));
}

}  // namespace
}  // namespace freshet
