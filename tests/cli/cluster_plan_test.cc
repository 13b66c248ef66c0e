#include "cli/cluster/cluster_plan.h"

#include <map>
#include <string>
#include <vector>

#include "base/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace freshet {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::UnorderedElementsAre;

const absl::Time kNow = absl::FromUnixSeconds(1000);

const std::map<std::string, int> kSmall = {
    {"redis", 1}, {"controller", 1}, {"rollout", 2}, {"trainer", 1}};

ProcessView View(const std::string& role, int index, Phase phase,
                 absl::Duration age = absl::Seconds(1)) {
  ProcessView view;
  view.id = {role, "", index};
  view.phase = phase;
  view.since = kNow - age;
  view.retry_at = kNow;
  return view;
}

std::vector<std::string> Plan(std::vector<ProcessView> processes,
                              const std::map<std::string, int>& wanted, bool stopping = false) {
  PlanInput input;
  input.processes = std::move(processes);
  input.wanted = wanted;
  input.stopping = stopping;
  input.now = kNow;
  std::vector<std::string> texts;
  for (const Action& action : PlanCluster(input)) {
    const char* kind = action.kind == Action::Kind::kStart   ? "start"
                       : action.kind == Action::Kind::kDrain ? "drain"
                       : action.kind == Action::Kind::kKill  ? "kill"
                                                             : "forget";
    texts.push_back(StrCat(kind, " ", action.id.Name()));
    EXPECT_FALSE(action.reason.empty());
  }
  return texts;
}

std::vector<ProcessView> AllReady() {
  return {View("redis", 1, Phase::kReady), View("controller", 1, Phase::kReady),
          View("rollout", 1, Phase::kReady), View("rollout", 2, Phase::kReady),
          View("trainer", 1, Phase::kReady)};
}

TEST(ClusterPlan, StartsInOrder) {
  EXPECT_THAT(Plan({}, kSmall), ElementsAre("start redis"));
  EXPECT_THAT(Plan({View("redis", 1, Phase::kStarting)}, kSmall), IsEmpty());
  EXPECT_THAT(Plan({View("redis", 1, Phase::kReady)}, kSmall), ElementsAre("start controller-1"));
  EXPECT_THAT(Plan({View("redis", 1, Phase::kReady), View("controller", 1, Phase::kReady)}, kSmall),
              ElementsAre("start rollout-1", "start rollout-2", "start trainer-1"));
}

TEST(ClusterPlan, LeavesACompleteClusterAlone) { EXPECT_THAT(Plan(AllReady(), kSmall), IsEmpty()); }

TEST(ClusterPlan, StartsAgainWhatHasDiedWhenItsTimeHasCome) {
  std::vector<ProcessView> processes = AllReady();
  processes[2].phase = Phase::kBackoff;
  EXPECT_THAT(Plan(processes, kSmall), ElementsAre("start rollout-1"));
  processes[2].retry_at = kNow + absl::Milliseconds(1);
  EXPECT_THAT(Plan(processes, kSmall), IsEmpty());
}

TEST(ClusterPlan, WorkersWaitForRedisToComeBack) {
  std::vector<ProcessView> processes = AllReady();
  processes[0].phase = Phase::kStarting;
  processes[2].phase = Phase::kBackoff;
  EXPECT_THAT(Plan(processes, kSmall), IsEmpty());
}

TEST(ClusterPlan, ScalesUpWithTheLowestFreeNumber) {
  std::vector<ProcessView> processes = AllReady();
  processes[2].phase = Phase::kDraining;  // rollout-1 is still draining
  std::map<std::string, int> wanted = kSmall;
  wanted["rollout"] = 3;
  EXPECT_THAT(Plan(processes, wanted), ElementsAre("start rollout-3", "start rollout-4"));
}

TEST(ClusterPlan, ScalesDownFromTheHighestNumber) {
  std::map<std::string, int> wanted = kSmall;
  wanted["rollout"] = 1;
  EXPECT_THAT(Plan(AllReady(), wanted), ElementsAre("drain rollout-2"));
  wanted["rollout"] = 0;
  EXPECT_THAT(Plan(AllReady(), wanted), ElementsAre("drain rollout-2", "drain rollout-1"));
}

TEST(ClusterPlan, ForgetsWhatDiedAndIsNotWantedAnyMore) {
  std::vector<ProcessView> processes = AllReady();
  processes[3].phase = Phase::kBackoff;
  std::map<std::string, int> wanted = kSmall;
  wanted["rollout"] = 1;
  EXPECT_THAT(Plan(processes, wanted), ElementsAre("forget rollout-2"));
}

TEST(ClusterPlan, PoolsAreGroupsOfTheirOwn) {
  std::map<std::string, int> wanted = kSmall;
  wanted["rollout/small"] = 1;
  EXPECT_THAT(Plan(AllReady(), wanted), ElementsAre("start rollout-small-1"));
  std::vector<ProcessView> processes = AllReady();
  ProcessView small = View("rollout", 1, Phase::kReady);
  small.id.pool = "small";
  processes.push_back(small);
  EXPECT_THAT(Plan(processes, kSmall), ElementsAre("drain rollout-small-1"));
}

TEST(ClusterPlan, BoundsTheNumberOfProcesses) {
  std::map<std::string, int> wanted = kSmall;
  wanted["rollout"] = 1000000;
  EXPECT_EQ(Plan(AllReady(), wanted).size(), 62U);
  wanted["rollout"] = -5;
  EXPECT_EQ(Plan(AllReady(), wanted).size(), 2U);
}

TEST(ClusterPlan, KillsWhatNeitherStartsNorEnds) {
  const PlanLimits limits;
  std::vector<ProcessView> processes = AllReady();
  processes[2] = View("rollout", 1, Phase::kStarting, limits.start_timeout + absl::Seconds(1));
  processes[3] = View("rollout", 2, Phase::kStarting, limits.start_timeout);
  EXPECT_THAT(Plan(processes, kSmall), ElementsAre("kill rollout-1"));
  processes[2].killed = true;
  EXPECT_THAT(Plan(processes, kSmall), IsEmpty());
  processes[2] = View("rollout", 1, Phase::kDraining, limits.drain_timeout + absl::Seconds(1));
  std::map<std::string, int> wanted = kSmall;
  wanted["rollout"] = 1;
  EXPECT_THAT(Plan(processes, wanted), ElementsAre("kill rollout-1"));
}

TEST(ClusterPlan, AModelServerHasLongerToLoadItsModel) {
  const PlanLimits limits;
  std::map<std::string, int> wanted = kSmall;
  wanted["model/rm"] = 1;
  EXPECT_THAT(Plan(AllReady(), wanted), ElementsAre("start model-rm-1"));
  std::vector<ProcessView> processes = AllReady();
  processes.push_back(View("model", 1, Phase::kStarting, limits.start_timeout + absl::Seconds(1)));
  processes.back().id.pool = "rm";
  EXPECT_THAT(Plan(processes, wanted), IsEmpty());
  processes.back().since = kNow - limits.model_start_timeout - absl::Seconds(1);
  EXPECT_THAT(Plan(processes, wanted), ElementsAre("kill model-rm-1"));
}

TEST(ClusterPlan, StopsInTheOppositeOrder) {
  EXPECT_THAT(Plan(AllReady(), kSmall, true),
              UnorderedElementsAre("drain rollout-1", "drain rollout-2", "drain trainer-1"));
  std::vector<ProcessView> processes = {View("redis", 1, Phase::kReady),
                                        View("controller", 1, Phase::kReady),
                                        View("trainer", 1, Phase::kDraining)};
  EXPECT_THAT(Plan(processes, kSmall, true), IsEmpty());
  processes.pop_back();
  EXPECT_THAT(Plan(processes, kSmall, true), ElementsAre("drain controller-1"));
  processes.pop_back();
  EXPECT_THAT(Plan(processes, kSmall, true), ElementsAre("drain redis"));
  EXPECT_THAT(Plan({}, kSmall, true), IsEmpty());
}

TEST(ClusterPlan, AStopForgetsWhatWaitsToStart) {
  EXPECT_THAT(
      Plan({View("redis", 1, Phase::kReady), View("trainer", 1, Phase::kBackoff)}, kSmall, true),
      UnorderedElementsAre("drain redis", "forget trainer-1"));
}

TEST(ClusterPlan, RestartDelaysGrowToABound) {
  EXPECT_EQ(RestartDelay(1), absl::Milliseconds(200));
  EXPECT_EQ(RestartDelay(3), absl::Milliseconds(800));
  EXPECT_EQ(RestartDelay(7), absl::Seconds(10));
  EXPECT_EQ(RestartDelay(1000000), absl::Seconds(10));
}

}  // namespace
}  // namespace freshet
