// SIGTERM to the members of a busy cluster: each returns its leases and exits with 0.

#include <algorithm>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/e2e/cluster_job.h"
#include "tests/testing/cluster_processes.h"

namespace freshet {
namespace {

using job::v1::JOB_STATE_SUCCEEDED;

constexpr int kSteps = 120;

class ClusterDrainTest : public testing::Test {
 protected:
  void SetUp() override {
    FRESHET_SKIP_WITHOUT_REDIS();
    ClusterOptions options;
    options.simulated = false;
    cluster_ = std::make_unique<ClusterProcesses>(options);
    absl::Status up = cluster_->Start({"rollout-0", "rollout-1", "reward-0", "env-0", "trainer-0"});
    ASSERT_TRUE(up.ok()) << up;
    up = cluster_->Submit(
        "j", QuickJob(kSteps,
                      "environment: {type: guess_number, max_turns: 2, max_turn_tokens: 8}\n"
                      "reward: {components: {won: {type: environment}}}\n"));
    ASSERT_TRUE(up.ok()) << up;
    ASSERT_TRUE(cluster_->AwaitStep("j", 3)) << cluster_->Get("j")->ShortDebugString();
  }
  void ExpectDrained(const std::string& name) {
    const absl::Status drained = cluster_->Drain(name);
    EXPECT_TRUE(drained.ok()) << drained;
  }
  void Launch(const std::string& name) {
    const absl::Status up = cluster_->Launch(name);
    ASSERT_TRUE(up.ok()) << up;
  }
  void ExpectTheJobEndsWell() {
    EXPECT_TRUE(cluster_->AwaitState("j", JOB_STATE_SUCCEEDED))
        << cluster_->Get("j")->ShortDebugString();
    const ChildResult verified = cluster_->Freshet({"ledger", "verify", "j"});
    EXPECT_EQ(verified.exit_code, 0) << verified.out << verified.err;
  }
  std::vector<nlohmann::json> Ledger() {
    const std::string folder = cluster_->folder().File("ledger-" + std::to_string(++exports_));
    const ChildResult result = cluster_->Freshet({"ledger", "export", "j", folder});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    std::vector<nlohmann::json> rows;
    std::istringstream lines(
        cluster_->folder().Read("ledger-" + std::to_string(exports_) + "/ledger.jsonl"));
    for (std::string line; std::getline(lines, line);) rows.push_back(nlohmann::json::parse(line));
    return rows;
  }

  std::unique_ptr<ClusterProcesses> cluster_;
  int exports_ = 0;
};

TEST_F(ClusterDrainTest, TheTrainerSavesItsLastStepSoThatNoneIsRedone) {
  ExpectDrained("trainer-0");
  int64_t trained = 0;
  int64_t durable = 0;
  for (const nlohmann::json& row : Ledger()) {
    if (row["event"] == "trained") trained = row["step"];
    if (row["event"] == "durable") durable = row["version"];
  }
  EXPECT_GE(trained, 3);
  EXPECT_EQ(durable, trained);
  ASSERT_LT(trained, kSteps) << "the job had ended before the drain";
  Launch("trainer-0");
  ExpectTheJobEndsWell();
  for (const nlohmann::json& row : Ledger()) EXPECT_FALSE(row.value("redo", false)) << row;
}

TEST_F(ClusterDrainTest, WorkersHandBackWhatTheyHold) {
  for (const char* name : {"rollout-0", "env-0", "reward-0"}) ExpectDrained(name);
  Launch("env-0");
  Launch("reward-0");
  const int64_t step = cluster_->Get("j")->step();
  ASSERT_TRUE(cluster_->AwaitStep("j", std::min<int64_t>(step + 3, kSteps - 1)));
  // No lease expired or was revoked.
  const auto expired = [&] {
    return cluster_->Metrics("controller").Sum("freshet_leases_expired_total", {{"job", "j"}});
  };
  EXPECT_EQ(expired(), 0);
  ExpectTheJobEndsWell();
}

TEST_F(ClusterDrainTest, TheControllerGivesUpTheLeadershipAndTheJobGoesOn) {
  ExpectDrained("controller");
  const absl::StatusOr<RedisReply> leader =
      cluster_->redis().Client()->Command({"HGET", "{freshet}:leader", "leader"});
  ASSERT_TRUE(leader.ok()) << leader.status();
  EXPECT_EQ(leader->text, "");
  Launch("controller");
  ExpectTheJobEndsWell();
}

}  // namespace
}  // namespace freshet
