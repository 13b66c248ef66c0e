// Two jobs in one cluster, and the operations on a running job.

#include <csignal>
#include <cstdlib>

#include "base/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/e2e/cluster_job.h"
#include "tests/testing/cluster_processes.h"

namespace freshet {
namespace {

using job::v1::JOB_STATE_CANCELLED;
using job::v1::JOB_STATE_PAUSED;
using job::v1::JOB_STATE_PENDING;
using job::v1::JOB_STATE_RUNNING;
using job::v1::JOB_STATE_SUCCEEDED;
using testing::HasSubstr;
using testing::IsEmpty;

class TwoJobsTest : public testing::Test {
 protected:
  void SetUp() override {
    FRESHET_SKIP_WITHOUT_REDIS();
    ::setenv("FRESHET_SIM_ENGINE", "16 1.0 0.02 1.0 8 0.8", 1);
    ::setenv("FRESHET_SIM_STEP_SECONDS", "0.02", 1);
  }
  void Start(const std::vector<std::string>& workers) {
    const absl::Status up = cluster_.Start(workers);
    ASSERT_TRUE(up.ok()) << up;
  }
  void Submit(const std::string& id, int steps, const std::string& more = "", int priority = 0) {
    const absl::Status submitted =
        cluster_.Submit(id, QuickJob(steps, StrCat(kLengthReward, more)), priority);
    ASSERT_TRUE(submitted.ok()) << submitted;
  }
  int Freshet(std::vector<std::string> args) {
    const ChildResult result = cluster_.Freshet(std::move(args));
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return result.exit_code;
  }
  job::v1::JobState State(const std::string& id) {
    return cluster_.Get(id).value_or(job::v1::Job()).state();
  }
  std::vector<std::string> KeysOf(const std::string& id) {
    std::vector<std::string> keys;
    for (const std::string& key : cluster_.Keys()) {
      if (key.find(id) != std::string::npos) keys.push_back(key);
    }
    return keys;
  }
  // Deletes an ended job, once its workers have released it.
  bool Delete(const std::string& id) {
    return ClusterProcesses::Await([&] { return cluster_.Freshet({"delete", id}).exit_code == 0; });
  }

  ClusterProcesses cluster_;
};

TEST_F(TwoJobsTest, RunSideBySideOnPoolsOfTheirOwn) {
  Start({"rollout-0", "rollout.blue-0", "reward-0", "trainer-0", "trainer-1"});
  Submit("one", 150);
  Submit("two", 150, "pool: blue\n");
  // Both run at the same time.
  EXPECT_TRUE(ClusterProcesses::Await(
      [&] { return State("one") == JOB_STATE_RUNNING && State("two") == JOB_STATE_RUNNING; }));
  for (const char* id : {"one", "two"}) {
    EXPECT_TRUE(cluster_.AwaitState(id, JOB_STATE_SUCCEEDED))
        << cluster_.Get(id)->ShortDebugString();
    const ChildResult verified = cluster_.Freshet({"ledger", "verify", id});
    EXPECT_EQ(verified.exit_code, 0) << verified.out << verified.err;
  }
}

TEST_F(TwoJobsTest, WaitInLineByPriority) {
  Start({"rollout-0", "reward-0", "trainer-0"});
  Submit("first", 150);
  ASSERT_TRUE(cluster_.AwaitState("first", JOB_STATE_RUNNING));
  Submit("low", 5);
  Submit("high", 5, "", 10);
  EXPECT_TRUE(ClusterProcesses::Await([&] {
    return cluster_.Get("low")->reason().starts_with("waits for") &&
           cluster_.Get("high")->reason().starts_with("waits for");
  }));
  for (const char* id : {"first", "low", "high"}) {
    EXPECT_TRUE(cluster_.AwaitState(id, JOB_STATE_SUCCEEDED));
  }
  const auto started = [this](const char* id) { return cluster_.Get(id)->started(); };
  const auto before = [](const google::protobuf::Timestamp& a,
                         const google::protobuf::Timestamp& b) {
    return std::make_pair(a.seconds(), a.nanos()) < std::make_pair(b.seconds(), b.nanos());
  };
  EXPECT_TRUE(before(started("first"), started("high")));
  EXPECT_TRUE(before(started("high"), started("low")));
}

TEST_F(TwoJobsTest, PauseHoldsAJobAndResumeContinuesIt) {
  Start({"rollout-0", "reward-0", "trainer-0"});
  Submit("j", 100);
  ASSERT_TRUE(cluster_.AwaitStep("j", 5));
  Freshet({"pause", "j"});
  ASSERT_TRUE(cluster_.AwaitState("j", JOB_STATE_PAUSED));
  // A step in progress may finish; then the step number must not change.
  int64_t step = -1;
  ASSERT_TRUE(ClusterProcesses::Await(
      [&] { return std::exchange(step, cluster_.Get("j")->step()) == cluster_.Get("j")->step(); }));
  Freshet({"resume", "j"});
  EXPECT_TRUE(cluster_.AwaitState("j", JOB_STATE_SUCCEEDED)) << cluster_.Get("j")->DebugString();
}

TEST_F(TwoJobsTest, ACancelledJobIsResumedFromItsLastCheckpoint) {
  Start({"rollout-0", "reward-0", "trainer-0"});
  Submit("j", 100);
  ASSERT_TRUE(cluster_.AwaitStep("j", 6));
  Freshet({"cancel", "j"});
  ASSERT_TRUE(cluster_.AwaitState("j", JOB_STATE_CANCELLED));
  const int64_t step = cluster_.Get("j")->step();
  Freshet({"resume", "j"});
  EXPECT_TRUE(cluster_.AwaitState("j", JOB_STATE_SUCCEEDED)) << cluster_.Get("j")->DebugString();
  EXPECT_GE(cluster_.Get("j")->step(), step);
  const ChildResult verified = cluster_.Freshet({"ledger", "verify", "j"});
  EXPECT_EQ(verified.exit_code, 0) << verified.out << verified.err;
}

TEST_F(TwoJobsTest, ADeletedJobLeavesNothingInRedis) {
  Start({"rollout-0", "reward-0", "trainer-0"});
  Submit("doomed", 1000);
  ASSERT_TRUE(cluster_.AwaitStep("doomed", 6));
  EXPECT_THAT(KeysOf("doomed"), testing::Not(IsEmpty()));
  Freshet({"cancel", "doomed"});
  ASSERT_TRUE(cluster_.AwaitState("doomed", JOB_STATE_CANCELLED));
  ASSERT_TRUE(Delete("doomed"));
  // Blobs of samples that were never put expire; all other keys are deleted at once.
  std::vector<std::string> left;
  for (const std::string& key : KeysOf("doomed")) {
    const auto ttl = cluster_.redis().Client()->Command({"TTL", key});
    if (ttl.ok() && ttl->integer >= 0) continue;
    left.push_back(key);
  }
  EXPECT_THAT(left, IsEmpty());
  EXPECT_EQ(cluster_.Freshet({"get", "doomed"}).exit_code, 4);
  // The cluster runs the next job.
  Submit("next", 5);
  EXPECT_TRUE(cluster_.AwaitState("next", JOB_STATE_SUCCEEDED));
}

TEST_F(TwoJobsTest, ARolloutThatJoinsTakesItsShare) {
  Start({"rollout-0", "reward-0", "trainer-0"});
  Submit("j", 100'000);
  ASSERT_TRUE(cluster_.AwaitStep("j", 5));
  ASSERT_TRUE(cluster_.Launch("rollout-1").ok());
  EXPECT_TRUE(ClusterProcesses::Await([&] {
    const auto put = cluster_.Metrics("rollout-1")
                         .Find("freshet_rollout_samples_total", {{"job", "j"}, {"outcome", "put"}});
    return put.value_or(0) > 0;
  })) << cluster_.Log("rollout-1");
  // The new rollout continues alone after the first one leaves.
  EXPECT_TRUE(cluster_.Drain("rollout-0").ok());
  EXPECT_TRUE(cluster_.AwaitStep("j", cluster_.Get("j")->step() + 20))
      << cluster_.Get("j")->DebugString();
  Freshet({"cancel", "j"});
  EXPECT_TRUE(cluster_.AwaitState("j", JOB_STATE_CANCELLED));
  const ChildResult verified = cluster_.Freshet({"ledger", "verify", "j"});
  EXPECT_EQ(verified.exit_code, 0) << verified.out << verified.err;
}

}  // namespace
}  // namespace freshet
