#include "base/memory_plan.h"

#include <limits>

#include "base/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace freshet {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

constexpr int64_t kLargest = std::numeric_limits<int64_t>::max();

TEST(MemoryPlan, RefusesWhatDoesNotFitAndNamesTheLargestItems) {
  const MemoryPlan plan = {{"small", 1}, {"weights", 300}, {"cache", 200}, {"gradients", 100}};
  EXPECT_EQ(TotalBytes(plan), 601);
  const MemoryCheck fits = CheckMemory("the trainer", plan, 601);
  EXPECT_TRUE(fits.status.ok());
  EXPECT_EQ(fits.warning, "");
  const MemoryCheck refused = CheckMemory("the trainer", plan, 600);
  EXPECT_EQ(refused.status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(Message(refused.status),
              AllOf(HasSubstr("the trainer needs at least 601 bytes of memory and may use 600"),
                    HasSubstr("weights 300 bytes, cache 200 bytes, gradients 100 bytes"),
                    Not(HasSubstr("small"))));
}

TEST(MemoryPlan, WarnsOfWhatOnlyTheLongestSamplesNeed) {
  MemoryPlan plan = {{"weights", 300}, {"activations", int64_t{3} << 30}};
  plan[1].is_upper_bound = true;
  const MemoryCheck check = CheckMemory("the job", plan, int64_t{2} << 30);
  EXPECT_TRUE(check.status.ok());
  EXPECT_THAT(check.warning, HasSubstr("the job may need up to 3.0 GiB of memory and may use 2.0"));
  EXPECT_FALSE(CheckMemory("the job", plan, 299).status.ok());
}

TEST(MemoryPlan, SizesThatDoNotFitAreTheLargest) {
  EXPECT_EQ(ProductOfSizes({3, 4, 5}), 60);
  EXPECT_EQ(ProductOfSizes({kLargest, 2, 3}), kLargest);
  EXPECT_EQ(ProductOfSizes({kLargest, 2, 0}), 0);
  EXPECT_EQ(SumOfSizes(kLargest, 1), kLargest);
  EXPECT_EQ(TotalBytes({{"a", kLargest}, {"b", kLargest}}), kLargest);
}

}  // namespace
}  // namespace freshet
