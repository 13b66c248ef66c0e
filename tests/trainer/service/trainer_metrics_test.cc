#include "trainer/service/trainer_metrics.h"

#include <prometheus/registry.h>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/registry_text.h"

namespace freshet {
namespace {

class TrainerMetricsTest : public testing::Test {
 protected:
  MetricsText Scraped() {
    MetricsText text = Scrape(registry_);
    EXPECT_THAT(text.problems(), testing::IsEmpty());
    return text;
  }
  std::optional<double> Value(const std::string& name) {
    return Scraped().Find(name, {{"job", "j"}});
  }
  void Begin(TrainerMetrics& metrics) {
    metrics.OnBegin("j", job::v1::JobSpec(), [] { return absl::ZeroDuration(); });
  }

  prometheus::Registry registry_;
};

TEST_F(TrainerMetricsTest, ShowsRowsThatWaitAndThoseGivenUp) {
  TrainerMetrics metrics(registry_);
  Begin(metrics);
  EXPECT_EQ(Value("freshet_trainer_unsent_rows"), 0);
  EXPECT_EQ(Value("freshet_trainer_rows_dropped_total"), 0);
  metrics.OnRows("j", 7, 100, 3);
  EXPECT_EQ(Value("freshet_trainer_unsent_rows"), 7);
  EXPECT_EQ(Value("freshet_trainer_unsent_bound_rows"), 100);
  EXPECT_EQ(Value("freshet_trainer_rows_dropped_total"), 3);
  metrics.OnEnd("j");
  Begin(metrics);  // counters restart with the work
  metrics.OnRows("j", 0, 100, 2);
  EXPECT_EQ(Value("freshet_trainer_unsent_rows"), 0);
  EXPECT_EQ(Value("freshet_trainer_rows_dropped_total"), 5);
}

TEST_F(TrainerMetricsTest, TheUtilisationNeedsAPeak) {
  StepMetrics step;
  step.model_flops = 3e9;
  step.train_seconds = 2;
  const std::vector<TrainGroup> groups;
  FinishedStep report;
  report.groups = &groups;
  report.result.ranks = 2;
  {
    TrainerMetrics metrics(registry_);
    Begin(metrics);
    metrics.OnStep("j", step, report);
    EXPECT_EQ(Value("freshet_model_flops_total"), 3e9);
    EXPECT_FALSE(Value("freshet_mfu_ratio").has_value());
  }
  TrainerMetrics metrics(registry_, /*peak_flops=*/3e9);
  Begin(metrics);
  EXPECT_FALSE(Value("freshet_mfu_ratio").has_value());  // before the first step
  metrics.OnStep("j", step, report);
  EXPECT_EQ(Value("freshet_mfu_ratio"), 0.25);
}

TEST_F(TrainerMetricsTest, CountsCheckpoints) {
  TrainerMetrics metrics(registry_);
  Begin(metrics);
  const auto count = [this](const char* result) {
    return Scraped().Find("freshet_checkpoints_total", {{"job", "j"}, {"result", result}});
  };
  EXPECT_EQ(count("ok"), 0);
  EXPECT_EQ(count("error"), 0);
  metrics.OnCheckpoint("j", true);
  metrics.OnCheckpoint("j", true);
  metrics.OnCheckpoint("j", false);
  metrics.OnCheckpoint("other", false);
  metrics.OnEnd("j");
  metrics.OnCheckpoint("j", true);  // the last one
  EXPECT_EQ(count("ok"), 3);
  EXPECT_EQ(count("error"), 1);
  EXPECT_FALSE(
      Scraped().Find("freshet_checkpoints_total", {{"job", "other"}, {"result", "error"}}));
}

TEST_F(TrainerMetricsTest, RatiosOfTokensAreCountedByClass) {
  TrainerMetrics metrics(registry_);
  Begin(metrics);
  const std::vector<TrainGroup> groups;
  FinishedStep report;
  report.groups = &groups;
  for (const double ratio : {0.05, 0.1, 1.0, 1.0, 30.0}) {
    report.result.importance_ratios.Add(ratio);
  }
  metrics.OnStep("j", StepMetrics(), report);
  const MetricsText text = Scraped();
  const auto at_most = [&](const char* bound) {
    return text.Find("freshet_importance_ratio_bucket", {{"job", "j"}, {"le", bound}});
  };
  EXPECT_EQ(at_most("0.1"), 2);
  EXPECT_EQ(at_most("0.99"), 2);
  EXPECT_EQ(at_most("1.01"), 4);
  EXPECT_EQ(at_most("10"), 4);
  EXPECT_EQ(at_most("+Inf"), 5);
  EXPECT_DOUBLE_EQ(*text.Find("freshet_importance_ratio_sum", {{"job", "j"}}), 32.15);
}

}  // namespace
}  // namespace freshet
