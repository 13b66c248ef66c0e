#include "model/packed_batch.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace freshet {
namespace {

using testing::ElementsAre;
using testing::FieldsAre;

TEST(PackTrees, APlainSequencePredictsAllButItsFirstToken) {
  const PackedBatch batch = PackTrees({{{5, 6, 7}, {}}});
  EXPECT_THAT(batch.token_ids, ElementsAre(5, 6, 7));
  EXPECT_THAT(batch.positions, ElementsAre(0, 1, 2));
  EXPECT_THAT(batch.target_ids, ElementsAre(6, 7));
  EXPECT_THAT(batch.target_sequences, ElementsAre(0, 0));
  EXPECT_EQ(batch.num_sequences, 1);
  EXPECT_THAT(batch.trees, ElementsAre(FieldsAre(0, 3, ElementsAre())));
}

TEST(PackTrees, ASharedPrefixIsStoredOnceAndTheLastTokenOfASuffixNotAtAll) {
  const PackedBatch batch = PackTrees({{{1, 2}, {{3, 4, 5}, {6, 7}}}});
  EXPECT_THAT(batch.token_ids, ElementsAre(1, 2, 3, 4, 6));
  EXPECT_THAT(batch.positions, ElementsAre(0, 1, 2, 3, 2));
  EXPECT_THAT(batch.target_ids, ElementsAre(3, 4, 5, 6, 7));
  EXPECT_THAT(batch.target_sequences, ElementsAre(0, 0, 0, 1, 1));
  EXPECT_EQ(batch.num_sequences, 2);
  EXPECT_THAT(batch.trees, ElementsAre(FieldsAre(0, 2, ElementsAre(2, 1))));
  // Both first tokens are predicted from the prefix's last row, which is stored once.
  EXPECT_EQ(batch.target_logit_rows[0], batch.target_logit_rows[3]);
  EXPECT_EQ(batch.logit_rows[static_cast<size_t>(batch.target_logit_rows[0])], 1);
}

TEST(PackTrees, ASuffixOfOneTokenHasATargetAndNoQuery) {
  const PackedBatch batch = PackTrees({{{1, 2}, {{9}}}});
  EXPECT_THAT(batch.token_ids, ElementsAre(1, 2));
  EXPECT_THAT(batch.target_ids, ElementsAre(9));
  EXPECT_THAT(batch.trees, ElementsAre(FieldsAre(0, 2, ElementsAre(0))));
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

TEST(PackByTokens, EachTreeGoesIntoTheFirstBatchThatHasRoom) {
  std::vector<PackTree> trees;
  for (const size_t tokens : {2, 5, 3, 1, 4, 3}) {
    trees.push_back({std::vector<int32_t>(tokens, 1), {}});
  }
  using Batches = std::vector<std::vector<size_t>>;
  EXPECT_EQ(PackByTokens(trees, 6), (Batches{{1, 3}, {4, 0}, {2, 5}}));
  EXPECT_EQ(PackByTokens(trees, 1000), (Batches{{1, 4, 2, 5, 0, 3}}));
  EXPECT_EQ(PackByTokens(trees, 3), (Batches{{1}, {4}, {2}, {5}, {0, 3}}))
      << "trees above the limit are alone";
  EXPECT_TRUE(PackByTokens({}, 2).empty());
}

}  // namespace
}  // namespace freshet
