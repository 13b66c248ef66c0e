#include "trainer/checkpoint/checkpoint_choice.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace freshet {
namespace {

using testing::HasSubstr;
using Stage = CheckpointTry::Stage;

TEST(CheckpointChoice, OneThatTheStoreDoesNotTakeIsPassedOver) {
  const auto decision = DecideCheckpoint(
      {Stage::kOpening, absl::FailedPreconditionError("version 8 of lineage 0 is not where"), 1});
  EXPECT_TRUE(decision.try_older);
  EXPECT_THAT(decision.reason, HasSubstr("not of the history"));
  EXPECT_THAT(decision.reason, HasSubstr("version 8 of lineage 0"));
}

TEST(CheckpointChoice, ADamagedOneIsPassedOver) {
  const auto decision =
      DecideCheckpoint({Stage::kLoading, absl::DataLossError("tensor x is missing"), 3});
  EXPECT_TRUE(decision.try_older);
  EXPECT_THAT(decision.reason, HasSubstr("it is damaged: tensor x is missing"));
}

TEST(CheckpointChoice, TheOldestIsTheLastToBeTried) {
  for (const Stage stage : {Stage::kLoading, Stage::kOpening}) {
    const absl::Status status =
        stage == Stage::kLoading ? absl::DataLossError("x") : absl::FailedPreconditionError("x");
    const auto decision = DecideCheckpoint({stage, status, 0});
    EXPECT_FALSE(decision.try_older);
    EXPECT_THAT(decision.reason, HasSubstr("no older checkpoint"));
  }
}

TEST(CheckpointChoice, OtherFailuresAreNoneOfTheCheckpoints) {
  // ABORTED means that this trainer itself is fenced.
  const absl::Status statuses[] = {absl::OkStatus(),
                                   absl::UnavailableError("x"),
                                   absl::CancelledError("x"),
                                   absl::InternalError("x"),
                                   absl::AbortedError("x"),
                                   absl::DataLossError("x"),
                                   absl::FailedPreconditionError("x")};
  for (const absl::Status& status : statuses) {
    const auto opened = DecideCheckpoint({Stage::kOpened, status, 1});
    EXPECT_FALSE(opened.try_older) << status;
    EXPECT_EQ(opened.reason, "") << status;
    if (absl::IsDataLoss(status) || absl::IsFailedPrecondition(status)) continue;
    EXPECT_FALSE(DecideCheckpoint({Stage::kLoading, status, 1}).try_older) << status;
    EXPECT_FALSE(DecideCheckpoint({Stage::kOpening, status, 1}).try_older) << status;
  }
  // The batch cannot be read, or the model cannot be created.
  EXPECT_FALSE(DecideCheckpoint({Stage::kOpening, absl::DataLossError("x"), 1}).try_older);
  EXPECT_FALSE(
      DecideCheckpoint({Stage::kLoading, absl::FailedPreconditionError("x"), 1}).try_older);
}

}  // namespace
}  // namespace freshet
