#include "base/memory_plan.h"

#include "base/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace freshet {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

TEST(MemoryPlan, RefusesWhatDoesNotFitAndNamesTheLargestItems) {
  const MemoryPlan plan = {{"small", 1}, {"weights", 300}, {"cache", 200}, {"gradients", 100}};
  EXPECT_EQ(TotalBytes(plan), 601);
  EXPECT_TRUE(CheckMemory("the trainer", plan, 601).ok());
  const absl::Status refused = CheckMemory("the trainer", plan, 600);
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(Message(refused),
              AllOf(HasSubstr("the trainer needs 601 bytes"), HasSubstr("may use 600"),
                    HasSubstr("weights 300, cache 200, gradients 100"), Not(HasSubstr("small"))));
}

}  // namespace
}  // namespace freshet
