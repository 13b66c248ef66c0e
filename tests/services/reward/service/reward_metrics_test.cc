#include "services/reward/service/reward_metrics.h"

#include <prometheus/registry.h>

#include "base/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/registry_text.h"

namespace freshet {
namespace {

using testing::IsEmpty;

class RewardMetricsTest : public testing::Test {
 protected:
  MetricsText Scraped() {
    MetricsText text = Scrape(registry_);
    EXPECT_THAT(text.problems(), IsEmpty());
    return text;
  }

  prometheus::Registry registry_;
  RewardMetrics metrics_{registry_};
};

TEST_F(RewardMetricsTest, CountsOutcomesAndSamplesInHand) {
  const auto observer = metrics_.Of("a");
  for (int i = 0; i < 5; ++i) observer->OnBegin();
  observer->OnEnd(absl::OkStatus(), ScoreOutcome::kOk, absl::Milliseconds(3));
  observer->OnEnd(absl::OkStatus(), ScoreOutcome::kWrongFormat, absl::Milliseconds(3));
  observer->OnEnd(absl::DeadlineExceededError("slow"), ScoreOutcome::kOk, absl::Seconds(1));
  observer->OnEnd(absl::UnavailableError("gone"), ScoreOutcome::kOk, absl::Milliseconds(3));
  const MetricsText text = Scraped();
  for (const char* outcome : {"ok", "wrong_format", "timeout", "infra_error"}) {
    EXPECT_EQ(text.Find("freshet_reward_scores_total", {{"job", "a"}, {"outcome", outcome}}), 1);
  }
  EXPECT_EQ(text.Find("freshet_reward_scoring_samples", {{"job", "a"}}), 1);
  EXPECT_EQ(text.Find("freshet_reward_score_seconds_count", {{"job", "a"}}), 4);
}

TEST_F(RewardMetricsTest, CountsEachComponentUntilItsJobGoes) {
  {
    const auto observer = metrics_.Of("a");
    observer->OnComponent("judge", absl::OkStatus(), ScoreOutcome::kOk, absl::Seconds(2));
    observer->OnComponent("judge", absl::UnavailableError("gone"), ScoreOutcome::kOk,
                          absl::Seconds(1));
    observer->OnComponent("judge", absl::CancelledError(""), ScoreOutcome::kOk, absl::Seconds(9));
    observer->OnComponent("style", absl::OkStatus(), ScoreOutcome::kWrongFormat, absl::Seconds(4));
  }
  MetricsText text = Scraped();
  const std::string name = "freshet_reward_component_scores_total";
  const std::string seconds = "freshet_reward_component_seconds_total";
  EXPECT_EQ(text.Sum(name, {{"job", "a"}, {"component", "judge"}}), 2);
  EXPECT_EQ(text.Find(name, {{"job", "a"}, {"component", "judge"}, {"outcome", "infra_error"}}), 1);
  EXPECT_EQ(text.Find(name, {{"job", "a"}, {"component", "style"}, {"outcome", "wrong_format"}}),
            1);
  EXPECT_EQ(text.Find(seconds, {{"job", "a"}, {"component", "judge"}}), 3);  // 2 + 1
  for (int i = 0; i < 10; ++i) metrics_.Of(StrCat("job-", i));
  text = Scraped();
  EXPECT_FALSE(text.Sum(name, {{"job", "a"}}).has_value());
}

TEST_F(RewardMetricsTest, JobsThatNobodyScoresGoInTheEnd) {
  const auto kept = metrics_.Of("kept");
  for (int i = 0; i < 10; ++i) metrics_.Of(StrCat("job-", i));
  const MetricsText text = Scraped();
  EXPECT_TRUE(text.Sum("freshet_reward_scores_total", {{"job", "kept"}}).has_value());
  EXPECT_TRUE(text.Sum("freshet_reward_scores_total", {{"job", "job-9"}}).has_value());
  EXPECT_FALSE(text.Sum("freshet_reward_scores_total", {{"job", "job-0"}}).has_value());
}

TEST_F(RewardMetricsTest, ShowsCachesAndLostRows) {
  ScoreCache cache(1);
  for (int i = 0; i < 6; ++i) cache.Get({1, 1});
  cache.Put({1, 1}, {});
  for (int i = 0; i < 4; ++i) cache.Get({1, 1});
  metrics_.WatchCache("calls", cache);
  metrics_.Refresh({{"a", {2, 1, 16, 3, 4096}}});
  MetricsText text = Scraped();
  const std::string name = "freshet_reward_cache_requests_total";
  EXPECT_EQ(text.Find(name, {{"cache", "calls"}, {"result", "hit"}}), 4);
  EXPECT_EQ(text.Find(name, {{"cache", "calls"}, {"result", "miss"}}), 6);
  EXPECT_EQ(text.Find("freshet_reward_rows_lost_total", {{"job", "a"}}), 2);
  EXPECT_EQ(text.Find("freshet_datastore_errors_total", {{"job", "a"}}), 1);
  EXPECT_EQ(text.Find("freshet_reward_scoring_bound_samples", {{"job", "a"}}), 16);
  EXPECT_EQ(text.Find("freshet_reward_unsent_scores", {{"job", "a"}}), 3);
  EXPECT_EQ(text.Find("freshet_reward_unsent_bound_scores", {{"job", "a"}}), 4096);
  for (int i = 0; i < 5; ++i) cache.Get({1, 1});
  metrics_.Refresh({});
  text = Scraped();
  EXPECT_EQ(text.Find(name, {{"cache", "calls"}, {"result", "hit"}}), 9);
  EXPECT_FALSE(text.Has("freshet_reward_rows_lost_total"));
}

TEST_F(RewardMetricsTest, ACompositeScorerTellsItsObserver) {
  class Fixed final : public Scorer {
   public:
    absl::StatusOr<ComponentScore> Score(const ScoreInput& input) const override {
      if (input.completion == "fail") return absl::UnavailableError("gone");
      return ComponentScore{1.0};
    }
  };
  CompositeScorer scorer;
  scorer.Add("fixed", 1.0, std::make_unique<Fixed>());
  scorer.SetObserver(metrics_.Of("a"));
  const std::map<std::string, std::string> none;
  EXPECT_TRUE(scorer.Score({"good", 1, true, none}).ok());
  EXPECT_FALSE(scorer.Score({"fail", 1, true, none}).ok());
  const MetricsText text = Scraped();
  for (const char* outcome : {"ok", "infra_error"}) {
    EXPECT_EQ(text.Find("freshet_reward_component_scores_total",
                        {{"job", "a"}, {"component", "fixed"}, {"outcome", outcome}}),
              1);
  }
  EXPECT_EQ(text.Find("freshet_reward_scores_total", {{"job", "a"}, {"outcome", "ok"}}), 1);
  EXPECT_EQ(text.Find("freshet_reward_scores_total", {{"job", "a"}, {"outcome", "infra_error"}}),
            1);
  EXPECT_EQ(text.Find("freshet_reward_scoring_samples", {{"job", "a"}}), 0);
}

}  // namespace
}  // namespace freshet
