#include "trainer/learner/sft_warmup.h"

#include <set>

#include "base/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/trainer/learner/policy_learner_fixture.h"
#include "text/char_tokenizer.h"

namespace freshet {
namespace {

using testing::HasSubstr;

// Rows "N" with answer "N". Records the requested rows.
class DigitRows final : public WarmupRows {
 public:
  int64_t size() const override { return 10; }
  absl::StatusOr<WarmupRow> Get(int64_t index) override {
    asked.push_back(index);
    if (index == fail_at) return absl::UnavailableError("no row");
    WarmupRow row;
    row.prompt = StrCat(index);
    row.where = StrCat("row ", index);
    if (index != without_answer) row.attributes["answer"] = StrCat(index);
    return row;
  }

  std::vector<int64_t> asked;
  int64_t fail_at = -1;
  int64_t without_answer = -1;
};

class SftWarmupTest : public PolicyLearnerFixture {
 protected:
  SftWarmupTest() {
    job::v1::Sft& sft = *spec_.mutable_warmup()->mutable_sft();
    sft.set_steps(30);
    sft.set_batch_size(5);
    sft.set_learning_rate(0.01);
    spec_.set_seed(4);
  }
  absl::Status Run(PolicyLearner& learner) {
    return RunSftWarmup(spec_, *tokenizer_, rows_, learner,
                        [this](int64_t step, int64_t steps, double loss) {
                          EXPECT_EQ(steps, 30);
                          losses_.push_back(loss);
                          return step != stop_after_;
                        });
  }

  job::v1::JobSpec spec_;
  std::unique_ptr<Tokenizer> tokenizer_ = *CreateCharTokenizer("0123456789");
  DigitRows rows_;
  std::vector<double> losses_;
  int64_t stop_after_ = -1;
};

TEST_F(SftWarmupTest, LearnsTheAnswers) {
  const auto learner = MakeLearner();
  ASSERT_TRUE(Run(*learner).ok());
  ASSERT_EQ(losses_.size(), 30U);
  EXPECT_LT(losses_.back(), 0.5 * losses_.front());
}

TEST_F(SftWarmupTest, TakesEveryRowOnceBeforeAnyComesAgain) {
  const auto learner = MakeLearner();
  ASSERT_TRUE(Run(*learner).ok());
  ASSERT_EQ(rows_.asked.size(), 150U);
  for (size_t pass = 0; pass < 150; pass += 10) {
    const auto begin = rows_.asked.begin() + static_cast<ptrdiff_t>(pass);
    EXPECT_EQ(std::set<int64_t>(begin, begin + 10).size(), 10U);
  }
}

TEST_F(SftWarmupTest, TheSeedDecidesTheOrder) {
  const auto first = MakeLearner();
  ASSERT_TRUE(Run(*first).ok());
  const std::vector<int64_t> order = std::exchange(rows_.asked, {});
  const auto second = MakeLearner();
  ASSERT_TRUE(Run(*second).ok());
  EXPECT_EQ(rows_.asked, order);
  EXPECT_EQ(Weights(*first), Weights(*second));
  spec_.set_seed(5);
  rows_.asked.clear();
  ASSERT_TRUE(Run(*MakeLearner()).ok());
  EXPECT_NE(rows_.asked, order);
}

TEST_F(SftWarmupTest, StopsWhenItIsTold) {
  stop_after_ = 2;
  const auto learner = MakeLearner();
  EXPECT_EQ(Run(*learner).code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(losses_.size(), 2U);
}

TEST_F(SftWarmupTest, PassesOnWhatIsWrongWithARow) {
  const auto learner = MakeLearner();
  rows_.without_answer = 3;
  EXPECT_THAT(Message(Run(*learner)), HasSubstr("row 3: warmup.sft needs an answer"));
  rows_.fail_at = rows_.asked.front();
  EXPECT_EQ(Run(*learner).code(), absl::StatusCode::kUnavailable);
}

}  // namespace
}  // namespace freshet
