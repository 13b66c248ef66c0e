#include "controller/autoscale/pool_bounds.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace freshet {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;

TEST(PoolBoundsText, NamesPoolsAndTheirBounds) {
  const auto bounds = ParsePoolBounds({"default=1..8", "big.gpu-2=0..1000"});
  ASSERT_TRUE(bounds.ok()) << bounds.status();
  EXPECT_THAT(*bounds, ElementsAre(Pair("big.gpu-2", PoolBounds{0, 1000}),
                                   Pair("default", PoolBounds{1, 8})));
  EXPECT_TRUE(ParsePoolBounds({})->empty());
}

TEST(PoolBoundsText, RefusesWhatIsNoBoundsAndNamesIt) {
  for (const char* text :
       {"default", "default=", "default=1", "default=1..", "default=..8", "=1..8", "a b=1..8",
        "default=8..1", "default=0..0", "default=-1..8", "default=1..1001", "default=1..8x",
        "default=1...8", "default=1..99999999999999999999", "a/b=1..2"}) {
    const auto bounds = ParsePoolBounds({text});
    EXPECT_EQ(bounds.status().code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(std::string(bounds.status().message()), HasSubstr(text));
  }
  EXPECT_FALSE(ParsePoolBounds({std::string(64, 'a') + "=1..2"}).ok());
  EXPECT_THAT(std::string(ParsePoolBounds({"a=1..2", "a=1..2"}).status().message()),
              HasSubstr("named twice"));
}

}  // namespace
}  // namespace freshet
