// /metrics of every role in a cluster of real processes.

#include <unistd.h>

#include <cstdlib>
#include <map>
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

using testing::IsEmpty;

const std::vector<std::string>& Roles() {
  static const auto* roles =
      new std::vector<std::string>{"controller", "rollout-0", "reward-0", "env-0", "trainer-0"};
  return *roles;
}

void ExpectClean(const ClusterProcesses& cluster) {
  for (const std::string& role : Roles()) {
    const std::string body = cluster.MetricsBody(role);
    const MetricsText text(body);
    EXPECT_THAT(text.problems(), IsEmpty()) << role;
    EXPECT_TRUE(text.Has("freshet_build_info")) << role;
    EXPECT_TRUE(text.Has("process_resident_memory_bytes")) << role;
    EXPECT_TRUE(text.Has("freshet_grpc_server_handled_total")) << role;
  }
}

TEST(ClusterMetrics, EveryBinaryServesACleanTextFromTheStart) {
  FRESHET_SKIP_WITHOUT_REDIS();
  ClusterOptions options;
  options.simulated = false;
  ClusterProcesses cluster(options);
  const absl::Status up = cluster.Start({"rollout-0", "reward-0", "env-0", "trainer-0"});
  ASSERT_TRUE(up.ok()) << up;
  ExpectClean(cluster);
}

class ClusterMetricsOfAJob : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    if (!RedisServer::Available()) return;
    ClusterOptions options;
    options.simulated = false;
    cluster_ = new ClusterProcesses(options);
    up_ = cluster_->Start({"rollout-0", "reward-0", "env-0", "trainer-0"});
    if (!up_.ok()) return;
    // More steps than the tests wait for, because metrics of an ended job are removed.
    up_ = cluster_->Submit("j", QuickJob(1000000,
                                         "environment: {type: guess_number, max_turns: 2, "
                                         "max_turn_tokens: 8, options: {max: \"10\"}}\n"
                                         "reward: {components: {won: {type: environment}}}\n"
                                         "eval: {rows: 8, every_steps: 20, sets: [{name: greedy}, "
                                         "{name: sampled, samples_per_prompt: 4, "
                                         "pass_at: [1, 4]}]}\n"));
    if (!up_.ok()) return;
    if (!cluster_->AwaitStep("j", 20)) up_ = absl::InternalError(cluster_->Get("j")->DebugString());
  }
  static void TearDownTestSuite() { delete cluster_; }
  void SetUp() override {
    FRESHET_SKIP_WITHOUT_REDIS();
    ASSERT_TRUE(up_.ok()) << up_;
  }

  static MetricLabels Job(MetricLabels more = {}) {
    more["job"] = "j";
    return more;
  }

  // Polls a process until the metric reaches `least`.
  static MetricsText AwaitAtLeast(const std::string& process, const std::string& name,
                                  const MetricLabels& labels, double least) {
    MetricsText text = cluster_->Metrics(process);
    EXPECT_TRUE(ClusterProcesses::Await([&] {
      text = cluster_->Metrics(process);
      return text.Find(name, labels).value_or(0) >= least;
    })) << process
        << " shows no " << least << " of " << name;
    return text;
  }

  static inline ClusterProcesses* cluster_ = nullptr;
  static inline absl::Status up_;
};

TEST_F(ClusterMetricsOfAJob, IsCleanWhileItRuns) { ExpectClean(*cluster_); }

TEST_F(ClusterMetricsOfAJob, PromtoolFindsNothingWrong) {
  const char* variable = std::getenv("FRESHET_TEST_PROMTOOL");
  const std::string promtool = variable != nullptr ? variable : "/usr/bin/promtool";
  if (::access(promtool.c_str(), X_OK) != 0) {
    GTEST_SKIP() << promtool << " is not installed (package prometheus): test skipped";
  }
  for (const std::string& role : Roles()) {
    const ChildResult result = ChildProcess({promtool, "check", "metrics"},
                                            {.directory = "", .input = cluster_->MetricsBody(role)})
                                   .Wait(absl::Seconds(60));
    EXPECT_EQ(result.exit_code, 0) << role << ":\n" << result.out << result.err;
    EXPECT_EQ(result.out + result.err, "") << role;
  }
}

TEST_F(ClusterMetricsOfAJob, TheControllerShowsStoreQueuesAndStates) {
  const MetricLabels trained = Job({{"state", "trained"}});
  MetricsText text = AwaitAtLeast("controller", "freshet_groups_entered_total", trained, 80);
  EXPECT_EQ(text.Find("freshet_controller_leading"), 1);
  EXPECT_EQ(text.Find("freshet_datastore_up"), 1);
  EXPECT_EQ(text.Sum("freshet_job_state", Job()), 1);
  EXPECT_EQ(text.Find("freshet_staleness_bound_versions", Job()), 2);
  EXPECT_GT(*text.Find("freshet_group_state_seconds_total", Job({{"state", "queued"}})), 0);
  EXPECT_TRUE(text.Find("freshet_buffer_trajectories", Job({{"state", "ready"}})).has_value());
  EXPECT_GT(*text.Find("freshet_buffer_oldest_timestamp_seconds", Job({{"state", "queued"}})), 1e9);
  EXPECT_EQ(text.Find("freshet_trajectories_dropped_total", Job({{"reason", "stale"}})), 0);
  EXPECT_GT(*text.Find("freshet_job_queue_bound_entries", Job({{"queue", "prompts"}})), 0);
  EXPECT_EQ(text.Find("freshet_workers", {{"role", "rollout"}, {"state", "ready"}}), 1);
  EXPECT_EQ(text.Find("freshet_queue_bound_entries", {{"queue", "scaler_calls"}}), 64);
  EXPECT_GT(*text.Find("freshet_last_step_timestamp_seconds", Job()), 1e9);
}

TEST_F(ClusterMetricsOfAJob, TheTrainerShowsStalenessAndItsWait) {
  MetricsText text = cluster_->Metrics("trainer-0");
  // Each trained token has a staleness. The counters may disagree while a step is being reported.
  const auto agrees = [&] {
    text = cluster_->Metrics("trainer-0");
    const auto trained = text.Find("freshet_tokens_total", Job({{"phase", "trained"}}));
    return trained > 0.0 && text.Find("freshet_steps_total", Job()) >= 20.0 &&
           text.Find("freshet_trajectory_staleness_versions_count", Job()) == trained &&
           text.Find("freshet_trajectory_staleness_versions_bucket", Job({{"le", "2"}})) == trained;
  };
  EXPECT_TRUE(ClusterProcesses::Await(agrees));
  EXPECT_GT(*text.Find("freshet_trainer_wait_seconds_total", Job()), 0);
  for (const char* phase : {"stage", "transfer", "activate"}) {
    EXPECT_GE(*text.Find("freshet_weight_sync_seconds_count", {{"phase", phase}}), 20) << phase;
  }
  EXPECT_GT(*text.Find("freshet_reward_count", Job({{"environment", "guess_number"}})), 0);
  EXPECT_GE(*text.Sum("freshet_weight_publications_total", Job()), 10);
  EXPECT_GE(*text.Sum("freshet_weight_member_seconds_count", Job()), 10);
  EXPECT_EQ(text.Find("freshet_queue_bound_entries", {{"queue", "weight_pulls"}}), 8);
}

TEST_F(ClusterMetricsOfAJob, TheRolloutShowsWorkAndIdleness) {
  const MetricsText text =
      AwaitAtLeast("rollout-0", "freshet_rollout_samples_total", Job({{"outcome", "put"}}), 100);
  EXPECT_GT(*text.Find("freshet_tokens_total", Job({{"phase", "generated"}})), 0);
  EXPECT_GT(*text.Find("freshet_rollout_idle_seconds_total", Job()), 0);
  EXPECT_GE(*text.Find("freshet_weight_version", Job({{"role", "rollout"}})), 1);
  EXPECT_GE(*text.Find("freshet_weight_sync_seconds_count", {{"phase", "verify"}}), 20);
  EXPECT_GT(*text.Sum("freshet_rollout_episodes_total", Job()), 0);
  EXPECT_EQ(text.Find("freshet_queue_bound_entries", {{"queue", "weight_calls"}}), 64);
  EXPECT_EQ(text.Find("freshet_queue_bound_entries", {{"queue", "weight_prepares"}}), 8);
}

TEST_F(ClusterMetricsOfAJob, RewardAndEnvironmentShowOutcomes) {
  const MetricsText reward =
      AwaitAtLeast("reward-0", "freshet_reward_scores_total", Job({{"outcome", "ok"}}), 101);
  EXPECT_GT(*reward.Find("freshet_reward_scores_total", Job({{"outcome", "ok"}})), 100);
  EXPECT_EQ(reward.Find("freshet_reward_scores_total", Job({{"outcome", "infra_error"}})), 0);
  EXPECT_GT(*reward.Find("freshet_reward_score_seconds_count", Job()), 100);
  EXPECT_TRUE(reward.Find("freshet_reward_scoring_samples", Job()).has_value());
  const MetricsText env = cluster_->Metrics("env-0");
  EXPECT_GT(*env.Sum("freshet_episodes_total", {{"environment", "guess_number"}}), 100);
  EXPECT_GT(*env.Sum("freshet_environment_step_seconds_count"), 100);
  EXPECT_GT(*env.Find("freshet_queue_bound_entries", {{"queue", "episodes"}}), 0);
}

// Sums over the metrics rows of a job.
struct RowTotals {
  double idle = 0;
  int64_t generated = 0;
  std::map<std::string, int> evaluations;  // by set
};

void ReadRows(const std::string& out, RowTotals* totals) {
  std::istringstream lines(out);
  for (std::string line; std::getline(lines, line);) {
    const auto row = nlohmann::json::parse(line);
    if (row.contains("eval_name")) {
      ++totals->evaluations[row["eval_name"]];
      const bool sampled = row["eval_name"] == "sampled";
      ASSERT_EQ(row.at("samples_per_prompt"), sampled ? 4 : 1);
      ASSERT_EQ(row.at("eval_pass_at").size(), sampled ? 2U : 0U);
      continue;
    }
    totals->idle += row.at("rollout_idle_seconds").get<double>();
    totals->generated += row.at("tokens_generated").get<int64_t>();
    ASSERT_GT(row.at("tokens_trained").get<int64_t>(), 0);
    ASSERT_LT(row.at("step_seconds").get<double>(), 60);
  }
}

TEST_F(ClusterMetricsOfAJob, TheRowsOfStepsSayWhatTheRolloutsDid) {
  RowTotals totals;
  // Evaluations run in parallel to the steps and use the job's scorers, including environment
  // rewards.
  EXPECT_TRUE(ClusterProcesses::Await([&] {
    const ChildResult rows = cluster_->Freshet({"metrics", "j", "--json"});
    EXPECT_EQ(rows.exit_code, 0) << rows.err;
    totals = RowTotals{};
    ReadRows(rows.out, &totals);
    return HasFailure() ||
           (totals.idle > 0 && totals.generated > 0 && totals.evaluations["greedy"] >= 3 &&
            totals.evaluations["sampled"] >= 3);
  })) << totals.idle
      << " s idle, " << totals.generated << " tokens, " << totals.evaluations["greedy"] << " and "
      << totals.evaluations["sampled"] << " evaluations";
  const MetricsText controller = cluster_->Metrics("controller");
  for (const char* name : {"greedy", "sampled"}) {
    EXPECT_TRUE(
        controller.Find("freshet_eval_accuracy_ratio", Job({{"eval_name", name}})).has_value())
        << name;
  }
}

}  // namespace
}  // namespace freshet
