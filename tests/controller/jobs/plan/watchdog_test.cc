#include "controller/jobs/plan/watchdog.h"

#include "base/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "job/reward_types.h"

namespace freshet {
namespace {

using testing::HasSubstr;

constexpr absl::Duration kPatience = absl::Seconds(8);

JobHealth Healthy() {
  JobHealth health;
  health.trainers = 1;
  health.rollouts = 2;
  health.rewards = 1;
  health.pool = "default";
  health.explanation = Explanation{"rollout", "step 3 needs 2 groups"};
  return health;
}

TEST(Watchdog, StallsOnlyAfterItsPatience) {
  JobHealth health = Healthy();
  health.since_progress = kPatience - absl::Milliseconds(1);
  EXPECT_FALSE(FindBlockage(health, kPatience).stalled);
  health.since_progress = kPatience;
  EXPECT_TRUE(FindBlockage(health, kPatience).stalled);
  health.paused = true;
  EXPECT_FALSE(FindBlockage(health, kPatience).stalled) << "a pause is no stall";
}

struct Case {
  const char* name;
  std::function<void(JobHealth&)> change;
  const char* edge;
  const char* text;
};
void PrintTo(const Case& tested, std::ostream* out) { *out << tested.name; }

class WatchdogEdges : public testing::TestWithParam<Case> {};

TEST_P(WatchdogEdges, NamesTheEdge) {
  JobHealth health = Healthy();
  GetParam().change(health);
  const Blockage blockage = FindBlockage(health, kPatience);
  EXPECT_EQ(blockage.edge, GetParam().edge);
  EXPECT_THAT(blockage.text, HasSubstr(GetParam().text));
}

INSTANTIATE_TEST_SUITE_P(
    Edges, WatchdogEdges,
    testing::Values(
        Case{"NoReward",
             [](JobHealth& h) {
               h.rewards = 0;
               h.explanation = Explanation{"reward", "3 rows unscored"};
             },
             "reward", "0 reward workers ready; 3 rows unscored"},
        Case{"RewardSlow",
             [](JobHealth& h) {
               h.explanation = Explanation{"reward", "3 rows unscored"};
             },
             "reward", "3 rows unscored"},
        Case{"ScorerAway",
             [](JobHealth& h) {
               h.explanation = Explanation{"reward", "3 rows unscored"};
               h.reward_waits = "reward worker r0: rows wait for their scorer since 4s: host:1";
             },
             "reward", "3 rows unscored; reward worker r0: rows wait for their scorer since 4s"},
        Case{"NoRollout", [](JobHealth& h) { h.rollouts = 0; }, "rollout",
             "pool default: 0 rollouts ready; step 3 needs 2 groups"},
        Case{"NoRolloutOfItsEngine",
             [](JobHealth& h) {
               h.rollouts = 0;
               h.engine = "vllm";
             },
             "rollout", "pool default: 0 rollouts with engine vllm ready; step 3 needs 2 groups"},
        Case{"RolloutFails",
             [](JobHealth& h) { h.errors[cluster::v1::ROLE_ROLLOUT] = "rollout-0: no weights"; },
             "rollout", "no weights"},
        Case{"RewardFails",
             [](JobHealth& h) {
               h.explanation = Explanation{"reward", "3 rows unscored"};
               h.errors[cluster::v1::ROLE_REWARD] = "reward w0: no scorer";
             },
             "reward", "reward w0: no scorer; 3 rows unscored"},
        Case{"EnvFails", [](JobHealth& h) { h.errors[cluster::v1::ROLE_ENV] = "env e0: failed"; },
             "env", "env e0: failed; step 3 needs 2 groups"},
        Case{"RolloutWaits", [](JobHealth& h) { h.rollout_waits = "rollout r0: no answer in 5s"; },
             "rollout", "step 3 needs 2 groups; rollout r0: no answer in 5s"},
        Case{"EnvSilent",
             [](JobHealth& h) {
               h.env_waits = "rollout r0: 4 episodes wait for environment grpc host:1 since 4s";
               h.env_silence = kPatience / 2;
             },
             "env", "environment grpc host:1 since 4s; step 3 needs 2 groups"},
        Case{"EnvThinks",
             [](JobHealth& h) {
               h.env_waits = "rollout r0: 4 episodes wait for environment grpc host:1 since 3.9s";
               h.env_silence = kPatience / 2 - absl::Milliseconds(1);
             },
             "rollout", "step 3 needs 2 groups"},
        Case{"EnvSilentWhileTheStepWaitsForScores",
             [](JobHealth& h) {
               h.explanation = Explanation{"reward", "3 rows unscored"};
               h.env_waits = "rollout r0: 4 episodes wait for environment grpc host:1 since 60s";
               h.env_silence = absl::Minutes(1);
             },
             "reward", "3 rows unscored"},
        Case{"LastEvaluationWithASilentEnv",
             [](JobHealth& h) {
               h.trainer_done = true;
               h.env_waits = "rollout r0: 4 episodes wait for environment grpc host:1 since 60s";
               h.env_silence = absl::Minutes(1);
             },
             "evaluation", "environment grpc host:1"},
        Case{"NoEnv", [](JobHealth& h) { h.needs_env = true; }, "env",
             "0 environment workers ready"},
        Case{"TrainerLost",
             [](JobHealth& h) {
               h.trainers = 0;
               h.trainer_lost = "trainer trainer-0 is lost since 3s";
             },
             "trainer", "lost since 3s"},
        Case{"TrainerWarmsUp",
             [](JobHealth& h) {
               h.trainer_starts = true;
               h.trainer_waits = "warm-up step 3 of 9";
             },
             "trainer", "warm-up step 3 of 9"},
        Case{"TrainerBusy",
             [](JobHealth& h) {
               h.explanation = Explanation{"trainer", "step 3 is claimed"};
               h.trainer_waits = "saves a checkpoint";
             },
             "trainer", "step 3 is claimed; the trainer: saves a checkpoint"},
        Case{"DatasetExhausted",
             [](JobHealth& h) {
               h.explanation = Explanation{"prompts", "prompt queue empty"};
             },
             "prompts", "prompt queue empty"},
        Case{"StoreFull",
             [](JobHealth& h) {
               h.explanation = Explanation{"store", "store full"};
             },
             "store", "store full"},
        Case{"DatastoreFull", [](JobHealth& h) { h.store_full = "redis is at its memory limit"; },
             "datastore", "memory limit; step 3 needs 2 groups"},
        Case{"DatastoreFullWhileNoRolloutIsThere",
             [](JobHealth& h) {
               h.store_full = "redis is at its memory limit";
               h.rollouts = 0;
             },
             "rollout", "0 rollouts ready"},
        Case{"DatastoreAway", [](JobHealth& h) { h.store_error = "cannot connect"; }, "datastore",
             "cannot connect"},
        Case{"LastCheckpoint",
             [](JobHealth& h) {
               h.all_steps = true;
               h.trainer_waits = "the checkpoint hook: version 20";
             },
             "trainer", "all steps are done; the checkpoint hook: version 20"},
        Case{"LastEvaluation", [](JobHealth& h) { h.trainer_done = true; }, "evaluation",
             "last evaluation"},
        Case{"NothingKnownYet", [](JobHealth& h) { h.explanation.reset(); }, "trainer",
             "the trainer starts"}),
    [](const auto& test) { return std::string(test.param.name); });

TEST(Watchdog, EveryEdgeIsAKnownLabel) {
  JobHealth health = Healthy();
  health.explanation = Explanation{"something new", "text"};
  EXPECT_EQ(FindBlockage(health, kPatience).edge, "store");
}

TEST(Watchdog, WorkThatOnlyGoesInCirclesIsNoProgress) {
  StoreStats stats;
  const int64_t before = ProgressMark(stats);
  stats.transitions[static_cast<size_t>(GroupState::kLeased)] = 5;
  stats.transitions[static_cast<size_t>(GroupState::kRequeued)] = 5;
  stats.fenced_puts = 3;
  EXPECT_EQ(ProgressMark(stats), before);
  stats.samples_put = 1;
  EXPECT_NE(ProgressMark(stats), before);
}

TEST(DeathWatch, EndsAJobWhoseGroupsAllDie) {
  DeathWatch watch;
  StoreStats stats;
  int64_t& dead = stats.transitions[static_cast<size_t>(GroupState::kDead)];
  EXPECT_EQ(watch.Check(stats, {}), "");
  dead = DeathWatch::kMostDeadInARow - 1;
  EXPECT_EQ(watch.Check(stats, {}), "");
  dead = DeathWatch::kMostDeadInARow;
  stats.ended_by_reason = {{"dead(no answer)", dead}, {"dropped(too_old)", 100}};
  EXPECT_THAT(watch.Check(stats, {}), HasSubstr("dead(no answer)"));
}

TEST(DeathWatch, OneScoredGroupStartsTheCountAnew) {
  DeathWatch watch;
  StoreStats stats;
  int64_t& dead = stats.transitions[static_cast<size_t>(GroupState::kDead)];
  EXPECT_EQ(watch.Check(stats, {}), "");
  dead = DeathWatch::kMostDeadInARow - 1;
  stats.transitions[static_cast<size_t>(GroupState::kScored)] = 1;
  EXPECT_EQ(watch.Check(stats, {}), "");
  dead += DeathWatch::kMostDeadInARow - 1;
  EXPECT_EQ(watch.Check(stats, {}), "");
  ++dead;
  EXPECT_NE(watch.Check(stats, {}), "");
}

// The newest first, one failure apart, the newest at `failures` in a row.
std::vector<DeadLetter> DeathsOf(const std::string& component, int64_t failures) {
  std::vector<DeadLetter> newest(DeathWatch::kMostDeadInARow);
  for (DeadLetter& letter : newest) {
    letter.reason = StrCat(
        "score_failed: 3 times: infra_error: ", FailedComponent({component, failures--}), ": no");
  }
  return newest;
}

TEST(DeathWatch, EndsAJobOfWhichEveryGroupDiesThatAComponentScores) {
  DeathWatch watch;
  StoreStats stats;
  int64_t& dead = stats.transitions[static_cast<size_t>(GroupState::kDead)];
  int64_t& scored = stats.transitions[static_cast<size_t>(GroupState::kScored)];
  dead = 100;
  const std::vector<DeadLetter> newest = DeathsOf("brief", 31);
  EXPECT_EQ(watch.Check(stats, newest), "") << "these died before";
  dead += DeathWatch::kMostDeadInARow;
  scored += 200;  // of rows that the component does not score
  EXPECT_THAT(watch.Check(stats, newest), HasSubstr("component brief of the reward always fails"));
  EXPECT_EQ(watch.Check(stats, DeathsOf("brief", 30)), "") << "it has not failed often before";
  std::vector<DeadLetter> others = newest;
  others.back().reason = others.front().reason;
  EXPECT_EQ(watch.Check(stats, others), "") << "its failures have not grown";
  others = newest;
  others[3].reason = "too_slow";
  EXPECT_EQ(watch.Check(stats, others), "");
  others[3] = DeathsOf("exact", 40)[3];
  EXPECT_EQ(watch.Check(stats, others), "");
  scored += 100;
  EXPECT_EQ(watch.Check(stats, newest), "") << "most groups are scored";
}

TEST(DeathWatch, ReadsTheFailingComponentWhereTheScorerNamesIt) {
  const auto name = [](const std::string& error) {
    const auto failing = ParseFailingComponent(error);
    return failing.has_value() ? StrCat(failing->name, " ", failing->failures) : "";
  };
  EXPECT_EQ(name(FailedComponent({"brief", 16}) + ": no"), "brief 16");
  EXPECT_EQ(name(FailedComponent({"brief", 15}) + ": no"), "");
  const std::string foreign = "component x, which has failed 99 times in a row";
  EXPECT_EQ(name(FailedComponent({"brief", 1}) + ": " + foreign), "");
  EXPECT_EQ(name("program: " + foreign), "");
  EXPECT_EQ(name("component x, which has failed often, 9 times in a row"), "");
}

TEST(DeathWatch, ANewLeaderDoesNotCountFormerDeaths) {
  DeathWatch watch;
  StoreStats stats;
  stats.transitions[static_cast<size_t>(GroupState::kDead)] = 1000;
  EXPECT_EQ(watch.Check(stats, {}), "");
}

}  // namespace
}  // namespace freshet
