#include "trainer/learner/token_weights.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/trainer/learner/train_groups.h"
#include "text/char_tokenizer.h"
#include "trainer/learner/loss_selection.h"

namespace freshet {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

const std::vector<TokenWeight> kCall = {{"<c>", "</c>", 2}};

// "BEGIN-END*WEIGHT" of each part.
std::vector<std::string> Parts(std::string_view text, const std::vector<TokenWeight>& weights) {
  const std::vector<WeighedPart> found = FindParts(text, weights);
  std::vector<std::string> parts;
  parts.reserve(found.size());
  for (const WeighedPart& part : found) {
    parts.push_back(StrCat(part.begin, "-", part.end, "*", part.weight));
  }
  return parts;
}

TEST(FindParts, FromABeginToItsEnd) {
  EXPECT_THAT(Parts("x<c>y</c>z<c></c>", kCall), ElementsAre("1-9*2", "10-17*2"));
  EXPECT_THAT(Parts("</c>x<c", kCall), IsEmpty());
  EXPECT_THAT(Parts("", kCall), IsEmpty());
}

TEST(FindParts, AnOpenPartGoesToTheEndOfTheText) {
  EXPECT_THAT(Parts("x<c>y<c>", kCall), ElementsAre("1-8*2"));
  EXPECT_THAT(Parts("x<c>y</c>z", {{"<c>", "", 2}}), ElementsAre("1-10*2"));
}

TEST(FindParts, AnEndDoesNotOverlapItsBegin) {
  EXPECT_THAT(Parts("|a|b|", {{"|", "|", 3}}), ElementsAre("0-3*3", "4-5*3"));
}

TEST(FindParts, WhatIsInAPartBeginsNoOtherOne) {
  const std::vector<TokenWeight> weights = {{"<d>", "</d>", 3}, {"<c>", "</c>", 2}};
  EXPECT_THAT(Parts("<c><d></c></d><d></d>", weights), ElementsAre("0-10*2", "14-21*3"));
  EXPECT_THAT(Parts("<call>", {{"<ca", "", 2}, {"<c", "", 3}}), ElementsAre("0-6*2"))
      << "the first of the list";
}

// A group of one sample with advantage 1 whose text is `turns`; the environment wrote every second
// one. Ids are those of `tokenizer`.
TrainingRows RowsOf(const Tokenizer& tokenizer, const std::vector<std::string>& turns) {
  std::vector<int32_t> ids;
  std::vector<uint8_t> mask;
  for (size_t turn = 0; turn < turns.size(); ++turn) {
    const std::vector<int32_t> of_turn = *tokenizer.Encode(turns[turn]);
    for (const int32_t id : of_turn) {
      ids.push_back(id);
      mask.push_back(turn % 2 == 0 ? 1 : 0);
    }
  }
  TrainingRows rows;
  TrainingRows::Columns columns;
  columns.advantages.assign(ids.size(), 1);
  columns.sampled = mask;
  columns.loss_mask.assign(mask.begin(), mask.end());
  columns.sequence_index.assign(ids.size(), 0);
  columns.num_sequences = 1;
  PackTree tree;
  tree.prefix = {0};
  tree.suffixes = {ids};
  rows.Add(std::move(tree), std::move(columns));
  return rows;
}

class WeighTokensTest : public testing::Test {
 protected:
  // The advantages of the rows as weights of characters.
  std::string Weighted(const std::vector<std::string>& turns) {
    TrainingRows rows = RowsOf(*tokenizer_, turns);
    WeighTokens(kCall, *tokenizer_, rows);
    std::string text;
    for (const float advantage : rows.columns[0].advantages) text += StrCat(advantage);
    return text;
  }

  const std::unique_ptr<Tokenizer> tokenizer_ = *CreateCharTokenizer("<c>/xyz");
};

TEST_F(WeighTokensTest, MultipliesTheAdvantagesOfAPart) {
  EXPECT_EQ(Weighted({"x<c>y</c>z"}), "1222222221");
  TrainingRows rows = RowsOf(*tokenizer_, {"x<c>y</c>z"});
  rows.columns[0].loss_mask[1] = 0;
  EXPECT_EQ(WeighTokens(kCall, *tokenizer_, rows), 7) << "loss-bearing tokens";
  EXPECT_THAT(rows.columns[0].advantages, ElementsAre(1, 1, 2, 2, 2, 2, 2, 2, 2, 1));
}

TEST_F(WeighTokensTest, APartEndsWithItsTurnAndTheEnvironmentBeginsNone) {
  EXPECT_EQ(Weighted({"<c>x", "y</c>", "z"}),
            "2222"
            "11111"
            "1");
  EXPECT_EQ(Weighted({"x", "<c>", "y</c>"}),
            "1"
            "111"
            "11111");
}

TEST_F(WeighTokensTest, ResponsesOfAGroupAreApart) {
  const auto prompt = MakePrompt(0, {1});
  const auto sample = [&](int32_t index, const std::string& text, double reward) {
    const std::vector<int32_t> ids = *tokenizer_->Encode(text);
    return MakeTrainSample(prompt, index, ids, std::vector<float>(ids.size(), -1), reward);
  };
  auto rows = MakeTrainingRows({{0, {sample(0, "x<c>", 1), sample(1, "y</c>", 0)}}},
                               AdvantageKind::kDrGrpo);
  ASSERT_TRUE(rows.ok()) << rows.status();
  LossSpec spec;
  spec.token_weights = kCall;
  const auto counts = SelectLossTokens(spec, tokenizer_.get(), *rows);
  ASSERT_TRUE(counts.ok()) << counts.status();
  EXPECT_EQ(counts->weighted_tokens, 3);
  EXPECT_THAT(rows->columns[0].advantages, ElementsAre(0.5, 1, 1, 1, -0.5, -0.5, -0.5, -0.5, -0.5));
  EXPECT_THAT(rows->advantages[0], ElementsAre(0.5, -0.5)) << "as reported, without weights";
}

// Tokens that lie across the ends of a part, a character of two tokens, and a special token.
TEST(WeighTokens, DoesNotDependOnHowTheTextsAreTokenized) {
  const auto tokenizer = ParseTokenizer({{"tokenizer.json", R"({
    "added_tokens": [{"id": 0, "content": "<e>", "single_word": false, "lstrip": false,
                      "rstrip": false, "normalized": false, "special": true}],
    "normalizer": null, "pre_tokenizer": null, "post_processor": null,
    "decoder": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false,
                "use_regex": false},
    "model": {"type": "BPE", "vocab": {"<e>": 0, "x<": 1, "c>": 2, "\u00c3": 3, "\u00a9": 4,
                                       "<": 5, "/c>z": 6, "y": 7}, "merges": []}
  })"}},
                                        "dir");
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  const auto weighted = [&](const std::vector<int32_t>& ids, const TokenWeight& weight) {
    TrainingRows rows = RowsOf(**tokenizer, {});
    TrainingRows::Columns& columns = rows.columns[0];
    rows.trees[0].suffixes = {ids};
    columns.advantages.assign(ids.size(), 1);
    columns.sampled.assign(ids.size(), 1);
    columns.loss_mask.assign(ids.size(), 1);
    WeighTokens({weight}, **tokenizer, rows);
    return columns.advantages;
  };
  ASSERT_EQ((*tokenizer)->Decode({1, 2, 3, 4, 5, 6, 7}, false), "x<c>é</c>zy");
  EXPECT_THAT(weighted({7, 1, 2, 3, 4, 5, 6, 7}, kCall[0]), ElementsAre(1, 2, 2, 2, 2, 2, 2, 1));
  EXPECT_THAT(weighted({7, 3, 4, 7}, {"é", "y", 3}), ElementsAre(1, 3, 3, 3));
  EXPECT_THAT(weighted({7, 0, 7}, {"<e>", "", 0}), ElementsAre(1, 0, 0));
  EXPECT_THAT(weighted({0, 3}, {"<e>", "", 2}), ElementsAre(2, 2)) << "an unfinished character";
}

}  // namespace
}  // namespace freshet
