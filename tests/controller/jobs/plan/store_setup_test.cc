#include "controller/jobs/plan/store_setup.h"

#include "base/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "job/job_parser.h"
#include "tests/e2e/tiny_job.h"

namespace freshet {
namespace {

StoreOptions OptionsOf(const TinyJob& job) {
  const JobResult parsed = ParseJob(ToYaml(job), "job.yaml", {});
  EXPECT_TRUE(parsed.errors.empty()) << FormatConfigErrors(parsed.errors);
  return MakeStoreOptions(parsed.spec, "tiny-7");
}

TEST(StoreSetup, TheStoreIsMadeForTheJob) {
  TinyJob job = MakeTinyJob();
  job["staleness"] = "{max: 3, policy: requeue, max_requeues: 5}";
  job["rollout"] = "{max_new_tokens: 4, lease_ttl_ms: 2500, max_attempts: 7, max_hand_backs: 9}";
  job["reward"] = "{max_attempts: 4, components: {exact: {type: exact_match}}}";
  job["filter"] =
      "{zero_variance: true, max_filtered_in_a_row: 33, min_mean_reward: 0.25, max_mean_reward: 1}";
  job["replay"] = "{max_age: 9, min_reward: 0.5, max_successes: 2}";
  job["adaptive_rollouts"] = "{min_group_size: 2, min_reward: 0.75, max_tokens_factor: 1.5}";
  const StoreOptions store = OptionsOf(job);
  EXPECT_EQ(store.job, "tiny-7");
  EXPECT_EQ(store.staleness.max, 3);
  EXPECT_EQ(store.staleness.disposition, Disposition::kRequeue);
  EXPECT_EQ(store.staleness.groups_per_step, 8);
  EXPECT_EQ(store.staleness.max_in_flight, (3 + 1) * 8);
  EXPECT_EQ(store.group_size, 4);
  EXPECT_EQ(store.last_step, 6);
  EXPECT_EQ(store.capacity_groups, (3 + 1 + 2 * 2) * 8);
  EXPECT_EQ(store.lease_ttl, absl::Milliseconds(2500));
  EXPECT_EQ(store.max_row_failures, 4);
  EXPECT_EQ(store.max_lease_failures, 7);
  EXPECT_EQ(store.max_hand_backs, 9);
  EXPECT_EQ(store.max_requeues, 5);
  EXPECT_TRUE(store.filter.zero_variance);
  EXPECT_EQ(store.filter.min_mean, std::optional<double>(0.25));
  EXPECT_EQ(store.filter.max_mean, std::optional<double>(1));
  ASSERT_TRUE(store.replay.has_value());
  EXPECT_EQ(store.replay->max_age, 9);
  EXPECT_EQ(store.replay->min_reward, 0.5);
  EXPECT_EQ(store.replay->capacity, 1024);
  EXPECT_EQ(store.replay->max_successes, 2);
  EXPECT_EQ(store.adaptive, (AdaptiveOptions{2, 0.75, 1.5}));
  EXPECT_EQ(store.max_filtered_in_a_row, 33);
  EXPECT_TRUE(store.Validate().ok()) << store.Validate();
}

TEST(StoreSetup, RewardsThatCompareSamplesNeedWholeGroups) {
  for (const auto& [component, whole] :
       {std::pair{"{type: exact_match}", false},
        std::pair{"{type: python, function: f, group: true}", true},
        std::pair{"{type: judge, model: m, text: '{response}'}", false},
        std::pair{"{type: judge, model: m, text: '{response} {others}'}", true},
        std::pair{"{type: judge, model: m, text: '{response} {other}', pairwise: true}", true}}) {
    TinyJob job = MakeTinyJob();
    job["reward"] = StrCat("{components: {a: {type: length, max_tokens: 4}, b: ", component, "}}");
    EXPECT_EQ(OptionsOf(job).score_whole_groups, whole) << component;
  }
}

TEST(StoreSetup, LeasesThatAreNotRenewedForLessThanTwoSecondsAreRefused) {
  TinyJob job = MakeTinyJob();
  job["rollout"] = "{max_new_tokens: 4, lease_ttl_ms: 1999}";
  const JobResult parsed = ParseJob(ToYaml(job), "job.yaml", {});
  EXPECT_THAT(FormatConfigErrors(parsed.errors), testing::HasSubstr("rollout.lease_ttl_ms"));
}

// A job accepted by a version that did not have the key.
TEST(StoreSetup, AJobWithoutMaxHandBacksGetsTheDefault) {
  job::v1::JobSpec spec = ParseJob(ToYaml(MakeTinyJob()), "job.yaml", {}).spec;
  spec.mutable_rollout()->clear_max_hand_backs();
  EXPECT_EQ(MakeStoreOptions(spec, "tiny-7").max_hand_backs, 16);
}

TEST(StoreSetup, EveryPolicyHasItsDisposition) {
  for (const auto& [policy, disposition] :
       {std::pair{"wait", Disposition::kWait}, std::pair{"drop", Disposition::kDrop},
        std::pair{"requeue", Disposition::kRequeue}, std::pair{"mask", Disposition::kMask}}) {
    TinyJob job = MakeTinyJob();
    job["staleness"] = std::string("{policy: ") + policy + "}";
    EXPECT_EQ(OptionsOf(job).staleness.disposition, disposition) << policy;
  }
}

TEST(StoreSetup, TheLedgerOfTheWholeJobFits) {
  TinyJob job = MakeTinyJob();
  EXPECT_EQ(OptionsOf(job).max_ledger_rows, 1 << 20);
  job["trainer"] = "{steps: 1000000}";
  EXPECT_GE(OptionsOf(job).max_ledger_rows, 64 * 1'000'000LL * 8 * 4);
}

TEST(StoreSetup, WithoutCheckpointsOnTheWayTheWholeJobFits) {
  TinyJob job = MakeTinyJob();
  job["checkpoint"] = "{every_steps: 0}";
  EXPECT_EQ(OptionsOf(job).capacity_groups, (1 + 1 + 6) * 8);
}

}  // namespace
}  // namespace freshet
