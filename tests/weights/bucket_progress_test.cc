#include "weights/bucket_progress.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace freshet {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

TEST(BucketProgressTest, BucketsAreCompleteInAnyOrderAndThePrefixGrowsWithoutGaps) {
  BucketProgress progress(/*total_bytes=*/250, /*bucket_bytes=*/100);
  EXPECT_THAT(progress.Arrived({150, 100}), ElementsAre(2));
  progress.Verified(2);
  EXPECT_EQ(progress.verified_prefix(), 0);
  EXPECT_THAT(progress.Arrived({10, 60}), IsEmpty());
  EXPECT_THAT(progress.Arrived({70, 80}), ElementsAre(1));
  EXPECT_THAT(progress.Arrived({0, 10}), ElementsAre(0));
  progress.Verified(0);
  EXPECT_EQ(progress.verified_prefix(), 100);
  progress.Verified(1);
  EXPECT_EQ(progress.verified_prefix(), 250);
}

TEST(BucketProgressTest, RestartForgetsWhatFollows) {
  BucketProgress progress(250, 100);
  EXPECT_THAT(progress.Arrived({0, 250}), ElementsAre(0, 1, 2));
  for (int64_t bucket = 0; bucket < 3; ++bucket) progress.Verified(bucket);
  progress.Restart(100);
  EXPECT_EQ(progress.verified_prefix(), 100);
  EXPECT_THAT(progress.Arrived({100, 150}), ElementsAre(1, 2));
  progress.Verified(2);
  EXPECT_EQ(progress.verified_prefix(), 100);
  progress.Verified(1);
  EXPECT_EQ(progress.verified_prefix(), 250);
}

}  // namespace
}  // namespace freshet
