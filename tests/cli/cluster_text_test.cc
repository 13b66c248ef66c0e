#include "cli/format/cluster_text.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace freshet {
namespace {

using job::v1::Cluster;
using job::v1::Worker;
using testing::HasSubstr;

constexpr int64_t kNow = 1700000000;

Worker* AddWorker(Cluster& cluster, const char* name, const char* role, int64_t version) {
  Worker* worker = cluster.add_workers();
  worker->set_name(name);
  worker->set_role(role);
  worker->set_state("ready");
  worker->set_version(version);
  worker->mutable_last_seen()->set_seconds(kNow - 1);
  return worker;
}

Cluster SomeCluster() {
  Cluster cluster;
  Worker* first = AddWorker(cluster, "rollout-1", "rollout", 12);
  first->set_busy_ratio(0.5);
  first->set_tokens_per_second(1500);
  first->set_kv_cache_used_ratio(0.25);
  first->add_jobs("sums-1");
  Worker* second = AddWorker(cluster, "rollout-2", "rollout", 10);
  second->set_busy_ratio(1.0);
  second->set_tokens_per_second(500);
  second->set_restarts(2);
  second->set_waits_for("weights of version 12");
  AddWorker(cluster, "trainer-1", "trainer", 12);
  AddWorker(cluster, "reward-1", "reward", 0)->set_state("lost");
  (*cluster.mutable_wanted())["rollout"] = 3;
  (*cluster.mutable_wanted())["env"] = 1;
  return cluster;
}

TEST(ClusterText, PoolsWithLagAndWanted) {
  const std::string text = FormatTop(SomeCluster(), {}, absl::FromUnixSeconds(kNow), {200, false});
  EXPECT_THAT(text, HasSubstr("POOL     READY/WANT  BUSY  TOK/S  KV   VERSION  LAG  RESTARTS\n"
                              "env      0/1         -     -      -    -        -    0\n"
                              "reward   0/1         -     -      -    -        -    0\n"
                              "rollout  2/3         75%   2.00k  25%  12       2    2\n"
                              "trainer  1/1         0%    0      -    12       -    0\n"));
  EXPECT_THAT(text, HasSubstr("weights of version 12"));
  EXPECT_THAT(text, HasSubstr("no job; next: freshet submit JOB.yaml\n"));
}

TEST(ClusterText, AJobWithItsNewestStep) {
  TopJob top;
  top.job.set_id("sums-1");
  top.job.set_state(job::v1::JOB_STATE_RUNNING);
  top.job.set_step(12);
  top.job.set_steps(140);
  top.job.set_reward_mean(0.5);
  top.job.set_waits_for("rollout-2");
  StepMetrics step;
  step.step = 12;
  step.reward_std = 0.1;
  step.step_seconds = 2;
  step.trainer_wait_seconds = 0.5;
  StepMetrics older;
  older.step = 11;
  top.job.add_recent_events()->set_metrics_json(ToJson(older));
  top.job.add_recent_events()->set_metrics_json(ToJson(step));
  top.job.add_recent_events()->mutable_notice()->set_text("x");
  top.last_step = LastStep(top.job);
  ASSERT_TRUE(top.last_step.has_value());
  EXPECT_EQ(top.last_step->step, 12);
  const std::string text =
      FormatTop(SomeCluster(), {top}, absl::FromUnixSeconds(kNow), {200, false});
  EXPECT_THAT(text, HasSubstr("sums-1  RUNNING  step 12/140  reward 0.500 ± 0.100\n"));
  EXPECT_THAT(text, HasSubstr("trainer wait 25%"));
  EXPECT_THAT(text, HasSubstr("  waits for rollout-2\n"));
}

TEST(ClusterText, LinesAreCutToTheWidth) {
  const std::string text = FormatTop(SomeCluster(), {}, absl::FromUnixSeconds(kNow), {30, false});
  size_t begin = 0;
  while (begin < text.size()) {
    const size_t end = text.find('\n', begin);
    EXPECT_LE(Columns(text.substr(begin, end - begin)), 30);
    begin = end + 1;
  }
}

}  // namespace
}  // namespace freshet
