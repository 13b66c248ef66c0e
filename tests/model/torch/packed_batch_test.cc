#include "model/packed_batch.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace freshet {
namespace {

using testing::ElementsAre;
using Runs = std::vector<std::pair<size_t, size_t>>;

TEST(PackTrees, APlainSequencePredictsAllButItsFirstToken) {
  const PackedBatch batch = PackTrees({{{5, 6, 7}, {}}});
  EXPECT_THAT(batch.token_ids, ElementsAre(5, 6, 7));
  EXPECT_THAT(batch.positions, ElementsAre(0, 1, 2));
  EXPECT_THAT(batch.target_ids, ElementsAre(6, 7));
  EXPECT_THAT(batch.target_sequences, ElementsAre(0, 0));
  EXPECT_EQ(batch.num_sequences, 1);
  EXPECT_EQ(batch.num_suffixes, 0);
}

TEST(PackTrees, ASharedPrefixIsStoredOnceAndTheLastTokenOfASuffixNotAtAll) {
  const PackedBatch batch = PackTrees({{{1, 2}, {{3, 4, 5}, {6, 7}}}});
  EXPECT_THAT(batch.token_ids, ElementsAre(1, 2, 3, 4, 6));
  EXPECT_THAT(batch.positions, ElementsAre(0, 1, 2, 3, 2));
  EXPECT_THAT(batch.target_ids, ElementsAre(3, 4, 5, 6, 7));
  EXPECT_THAT(batch.target_sequences, ElementsAre(0, 0, 0, 1, 1));
  EXPECT_EQ(batch.num_sequences, 2);
  // Both first tokens are predicted from the prefix's last row, which is stored once.
  EXPECT_EQ(batch.target_logit_rows[0], batch.target_logit_rows[3]);
  EXPECT_EQ(batch.logit_rows[static_cast<size_t>(batch.target_logit_rows[0])], 1);
}

TEST(PackTrees, ASuffixOfOneTokenHasATargetAndNoQuery) {
  const PackedBatch batch = PackTrees({{{1, 2}, {{9}}}});
  EXPECT_THAT(batch.token_ids, ElementsAre(1, 2));
  EXPECT_THAT(batch.target_ids, ElementsAre(9));
  EXPECT_EQ(batch.num_suffixes, 0);
  EXPECT_EQ(batch.num_sequences, 1);
}

TEST(PackTrees, SequencesAreNumberedThroughTheBatch) {
  const PackedBatch batch = PackTrees({{{1}, {{2}, {3, 4}}}, {{5, 6}, {}}, {{7}, {{8}}}});
  EXPECT_THAT(batch.target_ids, ElementsAre(2, 3, 4, 6, 8));
  EXPECT_THAT(batch.target_sequences, ElementsAre(0, 1, 1, 2, 3));
  EXPECT_EQ(batch.num_sequences, 4);
}

TEST(PackTrees, AnEmptyPrefixOrSuffixIsABrokenInvariant) {
  EXPECT_DEATH(PackTrees({{{}, {{1}}}}), "broken invariant");
  EXPECT_DEATH(PackTrees({{{1}, {{}}}}), "broken invariant");
}

TEST(PackedTokens, EqualsTheStreamOfThatTree) {
  const std::vector<PackTree> trees = {
      {{1, 2, 3}, {}}, {{1, 2}, {{3, 4, 5}, {6}}}, {{1}, {{2}}}, {{1}, {}}};
  for (const PackTree& tree : trees) {
    EXPECT_EQ(PackedTokens(tree), static_cast<int64_t>(PackTrees({tree}).token_ids.size()));
  }
}

TEST(SplitByTokens, FillsRunsUpToTheLimitInOrder) {
  const std::vector<PackTree> trees(5, PackTree{{1, 2, 3}, {}});  // 3 tokens each
  EXPECT_EQ(SplitByTokens(trees, 6), (Runs{{0, 2}, {2, 4}, {4, 5}}));
  EXPECT_EQ(SplitByTokens(trees, 8), (Runs{{0, 2}, {2, 4}, {4, 5}}));
  EXPECT_EQ(SplitByTokens(trees, 9), (Runs{{0, 3}, {3, 5}}));
  EXPECT_EQ(SplitByTokens(trees, 1000), (Runs{{0, 5}}));
}

TEST(SplitByTokens, ATreeAboveTheLimitRunsAlone) {
  const std::vector<PackTree> trees = {{{1}, {}}, {{1, 2, 3, 4}, {}}, {{1}, {}}, {{1}, {}}};
  EXPECT_EQ(SplitByTokens(trees, 2), (Runs{{0, 1}, {1, 2}, {2, 4}}));
  EXPECT_TRUE(SplitByTokens({}, 2).empty());
}

}  // namespace
}  // namespace freshet
