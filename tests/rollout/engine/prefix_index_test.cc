#include "rollout/engine/prefix_index.h"

#include <numeric>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace freshet {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::UnorderedElementsAre;

// `count` tokens, of which those from `change` on differ from others' for each `variant`.
std::vector<int32_t> Tokens(int64_t count, int64_t change = 1000, int32_t variant = 0) {
  std::vector<int32_t> tokens(static_cast<size_t>(count));
  std::iota(tokens.begin(), tokens.end(), 0);
  for (int64_t i = change; i < count; ++i) tokens[static_cast<size_t>(i)] += 1000 * variant;
  return tokens;
}

TEST(PrefixIndex, FindsTheLongestPrefixOfWholeBlocks) {
  PrefixIndex index(8);
  EXPECT_THAT(index.Insert(0, Tokens(3 * kKvBlockTokens + 5), {4, 2, 6, 1}), ElementsAre(4, 2, 6));
  EXPECT_THAT(index.Find(0, Tokens(kKvBlockTokens - 1)), IsEmpty());
  EXPECT_THAT(index.Find(0, Tokens(2 * kKvBlockTokens + 15)), ElementsAre(4, 2));
  EXPECT_THAT(index.Find(0, Tokens(9 * kKvBlockTokens)), ElementsAre(4, 2, 6));
  EXPECT_THAT(index.Find(0, Tokens(9 * kKvBlockTokens, kKvBlockTokens, 1)), ElementsAre(4));
  EXPECT_THAT(index.Find(0, Tokens(9 * kKvBlockTokens, 0, 1)), IsEmpty());
  EXPECT_THAT(index.Find(1, Tokens(9 * kKvBlockTokens)), IsEmpty()) << "another space";
}

TEST(PrefixIndex, TheSameTokensAfterOthersAreAnotherBlock) {
  PrefixIndex index(8);
  const std::vector<int32_t> same(3 * kKvBlockTokens, 7);
  index.Insert(0, same, {0, 1, 2});
  EXPECT_THAT(index.Find(0, same), ElementsAre(0, 1, 2));
}

TEST(PrefixIndex, KeepsTheFirstOfTwoBlocksWithTheSameTokens) {
  PrefixIndex index(8);
  index.Insert(0, Tokens(2 * kKvBlockTokens), {0, 1});
  EXPECT_THAT(index.Insert(0, Tokens(3 * kKvBlockTokens), {5, 6, 7}), ElementsAre(7));
  EXPECT_THAT(index.Find(0, Tokens(3 * kKvBlockTokens)), ElementsAre(0, 1, 7));
}

TEST(PrefixIndex, AnErasedBlockEndsItsPrefixForGood) {
  PrefixIndex index(8);
  index.Insert(0, Tokens(3 * kKvBlockTokens), {0, 1, 2});
  index.Erase(1);
  index.Erase(7);  // not in the index
  EXPECT_THAT(index.Find(0, Tokens(3 * kKvBlockTokens)), ElementsAre(0));
  // Block 2 was computed after the erased block. The new block 1 may hold other tokens at the time
  // that 2 is found, so 2 must be inserted again.
  index.Insert(0, Tokens(2 * kKvBlockTokens), {0, 5});
  EXPECT_THAT(index.Find(0, Tokens(3 * kKvBlockTokens)), ElementsAre(0, 5));
  EXPECT_THAT(index.Insert(0, Tokens(3 * kKvBlockTokens), {0, 5, 2}), ElementsAre(2));
  EXPECT_THAT(index.Find(0, Tokens(3 * kKvBlockTokens)), ElementsAre(0, 5, 2));
}

TEST(PrefixIndex, ClearsOneSpace) {
  PrefixIndex index(8);
  index.Insert(0, Tokens(2 * kKvBlockTokens), {0, 1});
  index.Insert(1, Tokens(2 * kKvBlockTokens), {2, 3});
  EXPECT_THAT(index.Clear(0), UnorderedElementsAre(0, 1));
  EXPECT_THAT(index.Find(0, Tokens(2 * kKvBlockTokens)), IsEmpty());
  EXPECT_THAT(index.Find(1, Tokens(2 * kKvBlockTokens)), ElementsAre(2, 3));
}

}  // namespace
}  // namespace freshet
