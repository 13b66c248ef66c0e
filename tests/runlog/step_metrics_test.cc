#include "runlog/step_metrics.h"

#include <cmath>
#include <limits>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace freshet {
namespace {

using ::testing::HasSubstr;

TEST(StepMetrics, HoldsEveryKeyOfTheContract) {
  const auto json = nlohmann::json::parse(ToJson(StepMetrics{}));
  for (const char* key : {"step",
                          "policy_version",
                          "lineage",
                          "reward_mean",
                          "reward_std",
                          "loss",
                          "grad_norm",
                          "entropy",
                          "kl_behavior",
                          "ratio_clip_fraction",
                          "staleness_mean",
                          "staleness_p50",
                          "staleness_max",
                          "staleness_tokens",
                          "tokens_generated",
                          "tokens_trained",
                          "groups_dropped",
                          "groups_filtered",
                          "trainer_wait_seconds",
                          "rollout_idle_seconds",
                          "weight_swap_seconds",
                          "wall_seconds"}) {
    EXPECT_TRUE(json.contains(key)) << key;
  }
}

TEST(EvalMetrics, HoldsEveryKeyOfTheContract) {
  const auto json = nlohmann::json::parse(ToJson(EvalMetrics{}));
  for (const char* key : {"eval_name", "eval_accuracy", "policy_version", "rows",
                          "eval_failed_rows", "wall_seconds"}) {
    EXPECT_TRUE(json.contains(key)) << key;
  }
  EXPECT_FALSE(json.contains("step"));
}

TEST(StepMetrics, ComesBackFromItsLine) {
  StepMetrics metrics;
  metrics.step = 7;
  metrics.lineage = 2;
  metrics.reward_mean = 0.1;
  metrics.reward_components = {{"exact", 0.25}, {"length", -1}};
  metrics.kl_ref = 0.5;
  metrics.staleness_tokens = {{0, 100}, {2, 28}};
  metrics.tokens_trained = int64_t{1} << 40;
  metrics.wall_seconds = 1.0 / 3;
  const std::string line = ToJson(metrics);
  const absl::StatusOr<MetricsRow> row = ParseMetricsRow(line);
  ASSERT_TRUE(row.ok());
  ASSERT_TRUE(std::holds_alternative<StepMetrics>(*row));
  EXPECT_EQ(ToJson(std::get<StepMetrics>(*row)), line);
  EXPECT_EQ(std::get<StepMetrics>(*row).wall_seconds, 1.0 / 3);
  EXPECT_EQ(std::get<StepMetrics>(*row).staleness_tokens.at(2), 28);
}

TEST(EvalMetrics, ComesBackFromItsLine) {
  EvalMetrics metrics;
  metrics.eval_name = "held\"out\n";
  metrics.eval_accuracy = 0.75;
  metrics.policy_version = 20;
  const absl::StatusOr<MetricsRow> row = ParseMetricsRow(ToJson(metrics));
  ASSERT_TRUE(row.ok());
  ASSERT_TRUE(std::holds_alternative<EvalMetrics>(*row));
  EXPECT_EQ(std::get<EvalMetrics>(*row).eval_name, "held\"out\n");
  EXPECT_EQ(std::get<EvalMetrics>(*row).policy_version, 20);
}

TEST(StepMetrics, WritesNonFiniteNumbersAsNull) {
  StepMetrics metrics;
  metrics.loss = std::numeric_limits<double>::quiet_NaN();
  metrics.grad_norm = std::numeric_limits<double>::infinity();
  metrics.reward_components = {{"a", -std::numeric_limits<double>::infinity()}};
  const std::string line = ToJson(metrics);
  EXPECT_THAT(line, HasSubstr("\"loss\":null,\"grad_norm\":null"));
  EXPECT_THAT(line, HasSubstr("\"reward_components\":{\"a\":null}"));
  const absl::StatusOr<MetricsRow> row = ParseMetricsRow(line);
  ASSERT_TRUE(row.ok());
  EXPECT_TRUE(std::isnan(std::get<StepMetrics>(*row).loss));
}

TEST(StepMetrics, LeavesOutReferenceKlWithoutAReference) {
  EXPECT_THAT(ToJson(StepMetrics{}), ::testing::Not(HasSubstr("kl_ref")));
}

TEST(StepMetrics, KeepsItsKeyOrderOnOneLine) {
  const std::string line = ToJson(StepMetrics{});
  EXPECT_EQ(line.rfind("{\"step\":0,\"policy_version\":0,\"lineage\":0,\"reward_mean\":", 0), 0U);
  EXPECT_EQ(line.find('\n'), std::string::npos);
}

TEST(ParseMetricsRow, NamesTheKeyOfAWrongType) {
  for (const char* line : {R"({"step":"7"})", R"({"step":1.5})", R"({"step":99999999999999999999})",
                           R"({"step":18446744073709551615})"}) {
    const absl::StatusOr<MetricsRow> row = ParseMetricsRow(line);
    EXPECT_TRUE(absl::IsInvalidArgument(row.status())) << line;
    EXPECT_THAT(std::string(row.status().message()), HasSubstr("step")) << line;
  }
  EXPECT_FALSE(ParseMetricsRow(R"({"step":1,"staleness_tokens":{"x":1}})").ok());
  EXPECT_FALSE(ParseMetricsRow("[1]").ok());
  EXPECT_FALSE(ParseMetricsRow("{\"step\":1").ok());
}

TEST(ParseMetricsRow, RefusesDeepNesting) {
  const std::string deep = std::string(500'000, '[') + std::string(500'000, ']');
  const std::string line = R"({"a":)" + deep + R"(,"b":)" + deep + R"(,"step":1})";
  EXPECT_TRUE(absl::IsInvalidArgument(ParseMetricsRow(line).status()));
}

TEST(ParseMetricsRow, SkipsRowsOfOtherKinds) {
  const absl::StatusOr<MetricsRow> row = ParseMetricsRow(R"({"event":"note"})");
  ASSERT_TRUE(row.ok());
  EXPECT_TRUE(std::holds_alternative<std::monostate>(*row));
}

}  // namespace
}  // namespace freshet
