#include "controller/jobs/plan/death_reason.h"

#include "base/str_cat.h"
#include "base/utf8.h"
#include "controller/jobs/plan/watchdog.h"
#include "datastore/memory/in_memory_trajectory_store.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/fake_clock.h"

namespace freshet {
namespace {

using testing::AllOf;
using testing::HasSubstr;

// A store with groups of one sample that tests score or let die.
class DeathReasonTest : public testing::Test {
 protected:
  DeathReasonTest() {
    StoreOptions options;
    options.job = "job";
    options.staleness.max = 0;
    options.staleness.groups_per_step = 100;
    options.staleness.max_in_flight = 100;
    options.last_step = 100;
    options.capacity_groups = 1000;
    options.max_queued_prompts = 1000;
    options.max_row_failures = 1;
    auto store = InMemoryTrajectoryStore::Create(options, StoreOrigin(), clock_);
    EXPECT_TRUE(store.ok()) << store.status();
    store_ = *std::move(store);
    EXPECT_EQ(Check(), "");
  }
  // Why the job ends, or "".
  std::string Check() {
    const std::string failure = watch_.Check(*store_->Stats(), *store_->DeadLetters(kLimit));
    return failure.empty() ? failure : failure + LastDeath(*store_);
  }
  // Generates one more group and leases its row for scoring.
  RowLease NextRow() {
    Prompt prompt;
    prompt.ordinal = next_++;
    prompt.prompt_ids = {1};
    EXPECT_TRUE(store_->PutPrompts({prompt}).ok());
    const auto leased = store_->LeasePrompts({"rollout", "", {0, 0}, 1});
    EXPECT_EQ(leased->leases.size(), 1U) << leased->reason;
    Response response{{2}, {-1.0F}, {1}, {{{0, 0}, 0, 1}}, FinishReason::kStop, {}};
    EXPECT_TRUE(store_->PutSample(leased->leases[0].token, 0, response).ok());
    const auto rows = store_->LeaseRows(Task::kScore, "reward", 1);
    EXPECT_EQ(rows->size(), 1U);
    return rows->front();
  }
  void Die(int64_t groups) {
    for (int64_t i = 0; i < groups; ++i) {
      EXPECT_TRUE(store_->FailRow(Task::kScore, NextRow().token, StrCat("broken ", i)).ok());
    }
  }
  void BeScored() {
    FieldValues values;
    values.score = std::make_shared<const Score>(Score{1.0, {}, ScoreOutcome::kOk});
    EXPECT_TRUE(store_->PutFields(Task::kScore, NextRow().token, values).ok());
  }

  static constexpr int64_t kLimit = DeathWatch::kMostDeadInARow;
  FakeClock clock_;
  std::unique_ptr<InMemoryTrajectoryStore> store_;
  int64_t next_ = 0;
  DeathWatch watch_;
};

TEST_F(DeathReasonTest, AFewDeathsAreNoReasonToStop) {
  EXPECT_EQ(Check(), "");
  Die(kLimit - 1);
  EXPECT_EQ(Check(), "");
}

TEST_F(DeathReasonTest, DeathsInARowEndTheJobWithTheLastReason) {
  Die(kLimit);
  EXPECT_THAT(Check(), AllOf(HasSubstr(StrCat("the last ", kLimit, " prompt groups")),
                             HasSubstr(StrCat("broken ", kLimit - 1))));
}

TEST_F(DeathReasonTest, TheLastReasonIsFoundAmongMany) {
  constexpr int64_t kMany = kMaxDeadLetters + 10;
  Die(kMany);
  EXPECT_THAT(Check(), HasSubstr(StrCat("broken ", kMany - 1)));
}

TEST_F(DeathReasonTest, TheReasonIsOneLineOfValidText) {
  Die(kLimit - 1);
  // The store truncates the text by bytes, possibly within a character.
  std::string text = "two\nlines ";
  for (int i = 0; i < 300; ++i) text += "\u00e9";
  ASSERT_TRUE(store_->FailRow(Task::kScore, NextRow().token, text).ok());
  const std::string message = Check();
  EXPECT_THAT(message, HasSubstr("two lines \u00e9"));
  EXPECT_EQ(message.find('\n'), std::string::npos);
  EXPECT_EQ(ValidUtf8(message), message);
  EXPECT_LT(message.size(), 500U);
}

TEST_F(DeathReasonTest, AScoredGroupBreaksTheRow) {
  Die(kLimit - 1);
  EXPECT_EQ(Check(), "");
  BeScored();
  EXPECT_EQ(Check(), "");
  Die(kLimit - 1);
  EXPECT_EQ(Check(), "");
  Die(1);
  EXPECT_NE(Check(), "");
}

TEST_F(DeathReasonTest, OneScoredSinceTheLastLookIsEnough) {
  Die(kLimit);
  BeScored();
  EXPECT_EQ(Check(), "");
}

TEST_F(DeathReasonTest, TheReasonIsNamedWhenTheLedgerIsTrimmed) {
  Die(kLimit);
  ASSERT_TRUE(store_->TrimLedger(1000).ok());
  EXPECT_THAT(Check(), HasSubstr(StrCat("broken ", kLimit - 1)));
}

}  // namespace
}  // namespace freshet
