// Prompts that no engine can generate do not block a job: their groups die with a reason, and other
// prompts replace them.

#include <cstdint>
#include <limits>
#include <string>

#include "base/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/e2e/bad_games.h"
#include "tests/e2e/cluster_job.h"
#include "tests/testing/cluster_processes.h"

namespace freshet {
namespace {

using job::v1::JOB_STATE_SUCCEEDED;
using testing::HasSubstr;

constexpr int kAttempts = 3;

class DeadGroupTest : public testing::Test {
 protected:
  void SetUp() override { FRESHET_SKIP_WITHOUT_REDIS(); }
  void Run(const BadGames& games, int steps) {
    const absl::Status up = cluster_.Start({"rollout-0", "reward-0", "trainer-0"});
    ASSERT_TRUE(up.ok()) << up;
    std::string yaml =
        QuickJob(steps, StrCat("environment: {type: grpc, address: \"", games.address(),
                               "\", max_turns: 2, max_turn_tokens: 8, step_timeout_ms: 60000}\n",
                               "reward: {components: {won: {type: environment}}}\n"));
    const std::string tokens = "max_new_tokens: 40";
    yaml.replace(yaml.find(tokens), tokens.size(), StrCat(tokens, ", max_attempts: ", kAttempts));
    ASSERT_TRUE(cluster_.Submit("j", yaml).ok());
  }
  // The reason of the last dead group, or "".
  std::string LastReason() {
    const absl::StatusOr<job::v1::Job> job = cluster_.Get("j");
    return job.ok() && job->dead_groups_size() > 0 ? job->dead_groups(0).reason() : "";
  }
  void ExpectSuccess() {
    EXPECT_TRUE(cluster_.AwaitState("j", JOB_STATE_SUCCEEDED))
        << cluster_.Get("j")->ShortDebugString();
    const ChildResult verified = cluster_.Freshet({"ledger", "verify", "j"});
    EXPECT_EQ(verified.exit_code, 0) << verified.out << verified.err;
    EXPECT_THAT(verified.out, HasSubstr("every promise holds"));
  }

  static ClusterOptions Options() {
    ClusterOptions options;
    options.simulated = false;
    return options;
  }
  ClusterProcesses cluster_{Options()};
};

TEST_F(DeadGroupTest, GamesThatRaiseAreGivenUpAndTheJobGoesOn) {
  BadGames games(BadGames::Kind::kStepRaises, 4);
  Run(games, 10);
  ASSERT_TRUE(ClusterProcesses::Await([&] { return !LastReason().empty(); }))
      << cluster_.Get("j")->ShortDebugString();
  EXPECT_THAT(LastReason(), HasSubstr(StrCat("lease_failed: ", kAttempts, " times: environment")));
  EXPECT_THAT(LastReason(), HasSubstr("KeyError: 'answer'"));
  const ChildResult described = cluster_.Freshet({"describe", "j"});
  EXPECT_THAT(described.out, HasSubstr("died last"));
  EXPECT_THAT(described.out, HasSubstr("KeyError: 'answer'"));
  ExpectSuccess();
}

TEST_F(DeadGroupTest, APromptThatKillsItsEngineIsGivenUpAndTheJobGoesOn) {
  BadGames games(BadGames::Kind::kStepHangs, std::numeric_limits<int64_t>::max());
  Run(games, 40);
  for (int i = 0; i < kAttempts; ++i) {
    ASSERT_TRUE(ClusterProcesses::Await([&] { return games.hanging() > 0; }))
        << i << " kills: " << cluster_.Get("j")->ShortDebugString();
    cluster_.Kill("rollout-0");  // simulates a game that crashes its engine
    ASSERT_TRUE(ClusterProcesses::Await([&] { return games.hanging() == 0; }));
    ASSERT_TRUE(cluster_.Launch("rollout-0").ok());
  }
  ASSERT_TRUE(ClusterProcesses::Await([&] { return !LastReason().empty(); }))
      << cluster_.Get("j")->ShortDebugString();
  EXPECT_THAT(LastReason(), HasSubstr(StrCat("lease_failed: ", kAttempts, " times: worker")));
  EXPECT_THAT(LastReason(), HasSubstr("was lost"));
  ExpectSuccess();
  EXPECT_EQ(games.hanging(), 0);
}

}  // namespace
}  // namespace freshet
