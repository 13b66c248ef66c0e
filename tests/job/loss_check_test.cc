#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "job/job_parser.h"
#include "job/loss_setup.h"
#include "tests/e2e/tiny_job.h"

namespace freshet {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;

std::vector<ConfigError> Check(const std::string& keys, LossSpec& loss) {
  TinyJob job = MakeTinyJob();
  job["loss"] = keys;
  const JobResult parsed = ParseJob(ToYaml(job), "job.yaml", {});
  EXPECT_TRUE(parsed.errors.empty()) << FormatConfigErrors(parsed.errors);
  return CheckLoss(parsed.spec, parsed.places, loss);
}

TEST(LossCheck, ExpandsThePreset) {
  LossSpec loss;
  EXPECT_THAT(Check("{preset: decoupled_ppo}", loss), IsEmpty());
  EXPECT_EQ(loss, *ExpandPreset("decoupled_ppo"));
}

TEST(LossCheck, AJobWithStaleSamplesIsCorrectedByDefault) {
  LossSpec loss;
  EXPECT_THAT(Check("{preset: dapo}", loss), IsEmpty());
  EXPECT_EQ(loss.correction.kind, CorrectionKind::kTis);
  EXPECT_THAT(Check("{preset: dapo, correction: {kind: none}}", loss), IsEmpty());
  EXPECT_EQ(loss.correction.kind, CorrectionKind::kNone);
}

TEST(LossCheck, PartsOfResponsesHaveWeights) {
  LossSpec loss;
  EXPECT_THAT(Check("{turn_entropy_share: 0.8, entropy_control: {low: 0.2, high: 0.6}, "
                    "token_weights: [{begin: \"<tool_call>\", end: \"</tool_call>\", weight: 2}, "
                    "{begin: \"<answer>\", weight: 0.5}]}",
                    loss),
              IsEmpty());
  EXPECT_EQ(loss.turn_entropy_share, 0.8);
  EXPECT_EQ(loss.entropy_control, (EntropyControl{0.2, 0.6}));
  EXPECT_THAT(loss.token_weights,
              testing::ElementsAre(TokenWeight{"<tool_call>", "</tool_call>", 2},
                                   TokenWeight{"<answer>", "", 0.5}));
  LossSpec plain;
  EXPECT_THAT(Check("{}", plain), IsEmpty());
  EXPECT_FALSE(plain.entropy_control.has_value());
}

TEST(LossCheck, ReplayedSamplesNeedACorrection) {
  TinyJob job = MakeTinyJob();
  job["replay"] = "{max_age: 9, min_reward: 1}";
  const auto errors = [&](const std::string& loss) {
    job["loss"] = loss;
    const JobResult parsed = ParseJob(ToYaml(job), "job.yaml", {});
    EXPECT_TRUE(parsed.errors.empty()) << FormatConfigErrors(parsed.errors);
    LossSpec resolved;
    return FormatConfigErrors(CheckLoss(parsed.spec, parsed.places, resolved));
  };
  EXPECT_EQ(errors("{preset: dapo}"), "");
  EXPECT_EQ(errors("{preset: dapo, anchor: behavior}"), "");
  EXPECT_THAT(errors("{preset: dapo, correction: {kind: none}}"),
              AllOf(HasSubstr("replay: samples up to 9 versions old are trained without"),
                    HasSubstr("loss.correction")));
}

TEST(LossCheck, ALossThatContradictsItselfIsNamedWithItsPlace) {
  LossSpec loss;
  const std::vector<ConfigError> errors =
      Check("{anchor: behavior, correction: {kind: tis, cap: 2.0}}", loss);
  ASSERT_EQ(errors.size(), 1U);
  EXPECT_THAT(FormatConfigErrors(errors),
              AllOf(HasSubstr("job.yaml:"), HasSubstr("loss.correction.kind")));
}

}  // namespace
}  // namespace freshet
