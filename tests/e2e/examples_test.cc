// The examples with an environment teach what they say they teach.
#include "tests/e2e/freshet_fixture.h"

namespace freshet {
namespace {

class ExamplesTest : public FreshetFixture {
 protected:
  // Accuracy of the first and the last evaluation of the example.
  std::pair<double, double> Learn(const std::string& name, std::vector<std::string> flags) {
    flags.insert(flags.begin(), {"local", std::string(FRESHET_SOURCE_DIR) + "/examples/" + name,
                                 "--run-dir", "run"});
    const ChildResult result = Freshet(std::move(flags));
    EXPECT_EQ(result.exit_code, 0) << result.err;
    const std::vector<Json> evaluations = Evaluations();
    if (evaluations.size() < 2) return {0, 0};
    return {evaluations.front()["eval_accuracy"], evaluations.back()["eval_accuracy"]};
  }
};

TEST_F(ExamplesTest, GuessNumberLearnsBinarySearch) {
  const auto [first, last] = Learn("guess_number.yaml", {"--set", "trainer.steps=60"});
  EXPECT_LT(first, 0.65);
  EXPECT_GT(last, 0.9);
  ExpectVerified();
}

TEST_F(ExamplesTest, CalculatorLearnsToUseItsTool) {
  const auto [first, last] =
      Learn("calculator.yaml",
            {"--set", "trainer.steps=30", "--set",
             std::string("dataset.path=") + FRESHET_SOURCE_DIR + "/examples/calculator.jsonl"});
  EXPECT_GT(last, first + 0.3);
  ExpectVerified();
}

}  // namespace
}  // namespace freshet
