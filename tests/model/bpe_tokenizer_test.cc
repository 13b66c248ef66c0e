#include "model/bpe_tokenizer.h"

#include <string>
#include <vector>

#include "base/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace freshet {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::unique_ptr<Tokenizer> Make(BpeSpec spec) {
  auto tokenizer = BpeTokenizer::Create(std::move(spec), "spec");
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
  return *std::move(tokenizer);
}

BpeSpec Letters() {
  BpeSpec spec;
  spec.vocab = {{"a", 0},  {"b", 1},   {"c", 2}, {"ab", 3},
                {"bc", 4}, {"abc", 5}, {"_", 6}, {"_a", 7}};
  spec.decoder.emplace();
  return spec;
}

AddedToken Added(int32_t id, const std::string& content) {
  AddedToken token;
  token.id = id;
  token.content = content;
  return token;
}

TEST(BpeTokenizer, MergesTheBestRankFirst) {
  BpeSpec spec = Letters();
  spec.merges = {{"b", "c"}, {"a", "b"}};
  EXPECT_THAT(*Make(spec)->Encode("abc"), ElementsAre(0, 4));
  spec.merges = {{"a", "b"}, {"b", "c"}};
  EXPECT_THAT(*Make(spec)->Encode("abc"), ElementsAre(3, 2));
  spec.merges = {{"b", "c"}, {"a", "bc"}};
  EXPECT_THAT(*Make(spec)->Encode("abc"), ElementsAre(5));
}

TEST(BpeTokenizer, MergesTheLeftmostOfEqualRank) {
  BpeSpec spec;
  spec.vocab = {{"a", 0}, {"aa", 1}};
  spec.merges = {{"a", "a"}};
  EXPECT_THAT(*Make(spec)->Encode("aaaaa"), ElementsAre(1, 1, 0));
}

TEST(BpeTokenizer, EncodesALongRunInReasonableSteps) {
  // A quadratic merge of a million characters would exceed the test's time limit.
  BpeSpec spec;
  spec.vocab = {{"a", 0}, {"aa", 1}, {"aaaa", 2}};
  spec.merges = {{"a", "a"}, {"aa", "aa"}};
  const auto ids = Make(spec)->Encode(std::string(1'000'001, 'a'));
  ASSERT_EQ(ids->size(), 250'001U);
  EXPECT_EQ(ids->front(), 2);
  EXPECT_EQ(ids->back(), 0);
}

TEST(BpeTokenizer, FallsBackToBytes) {
  BpeSpec spec = Letters();
  spec.byte_fallback = true;
  spec.vocab["<0xC3>"] = 10;
  spec.vocab["<0xA9>"] = 11;
  EXPECT_THAT(*Make(spec)->Encode("a\u00e9b"), ElementsAre(0, 10, 11, 1));
}

TEST(BpeTokenizer, GivesUnkWhenAByteIsMissing) {
  BpeSpec spec = Letters();
  spec.byte_fallback = true;
  spec.vocab["<0xC3>"] = 10;
  spec.vocab["?"] = 12;
  spec.unk_token = "?";
  EXPECT_THAT(*Make(spec)->Encode("\u00e9x"), ElementsAre(12, 12));
  spec.fuse_unk = true;
  EXPECT_THAT(*Make(spec)->Encode("\u00e9xaxx"), ElementsAre(12, 0, 12));
}

TEST(BpeTokenizer, RefusesACharacterWithoutAnyFallback) {
  EXPECT_THAT(Message(Make(Letters())->Encode("a\u00e9").status()), HasSubstr("character U+00E9"));
}

TEST(BpeTokenizer, TakesAWholeWordWhenMergesAreIgnored) {
  BpeSpec spec = Letters();
  EXPECT_THAT(*Make(spec)->Encode("abc"), ElementsAre(0, 1, 2));
  spec.ignore_merges = true;
  EXPECT_THAT(*Make(spec)->Encode("abc"), ElementsAre(5));
}

TEST(BpeTokenizer, TakesTheLongestAddedToken) {
  BpeSpec spec = Letters();
  spec.added_tokens = {Added(10, "<x>"), Added(11, "<x><y>"), Added(12, "<")};
  EXPECT_THAT(*Make(spec)->Encode("a<x><y><x><"), ElementsAre(0, 11, 10, 12));
}

TEST(BpeTokenizer, StripsSpaceAroundAddedTokens) {
  BpeSpec spec = Letters();
  AddedToken left = Added(10, "<l>");
  left.lstrip = true;
  AddedToken right = Added(11, "<r>");
  right.rstrip = true;
  spec.added_tokens = {left, right};
  EXPECT_THAT(*Make(spec)->Encode("a \u2003<l>b"), ElementsAre(0, 10, 1));
  EXPECT_THAT(*Make(spec)->Encode("a<r>\n\u00a0 b"), ElementsAre(0, 11, 1));
  EXPECT_THAT(*Make(spec)->Encode("<r> <l>"), ElementsAre(11, 10));
  EXPECT_FALSE(Make(spec)->Encode("a <r>").ok());  // the space is kept and has no token
}

TEST(BpeTokenizer, NormalizesEachPieceBetweenAddedTokens) {
  BpeSpec spec = Letters();
  spec.merges = {{"_", "a"}};
  NormalizeStep prepend;
  prepend.kind = NormalizeStep::Kind::kPrepend;
  prepend.content = "_";
  NormalizeStep replace;
  replace.pattern = " ";
  replace.content = "_";
  spec.normalizer = {prepend, replace};
  spec.added_tokens = {Added(10, "<x>")};
  EXPECT_THAT(*Make(spec)->Encode("a a<x>a"), ElementsAre(7, 7, 10, 7));
  EXPECT_TRUE(Make(spec)->Encode("")->empty());
}

TEST(BpeTokenizer, FindsNormalizedAddedTokensInNormalizedText) {
  BpeSpec spec = Letters();
  NormalizeStep replace;
  replace.pattern = " ";
  replace.content = "_";
  spec.normalizer = {replace};
  AddedToken token = Added(10, "a b");
  token.normalized = true;
  spec.added_tokens = {token};
  EXPECT_THAT(*Make(spec)->Encode("ca_bc"), ElementsAre(2, 10, 2));
}

TEST(BpeTokenizer, PutsMetaspaceWhereTheSchemeSays) {
  BpeSpec spec = Letters();
  spec.added_tokens = {Added(10, "<x>")};
  MetaspaceRule rule;
  rule.replacement = "_";
  rule.split = false;
  rule.scheme = MetaspaceRule::Scheme::kFirst;
  spec.pre_tokenizer = {rule};
  EXPECT_THAT(*Make(spec)->Encode("a<x>b"), ElementsAre(6, 0, 10, 1));
  EXPECT_THAT(*Make(spec)->Encode(" a"), ElementsAre(6, 0));
  EXPECT_THAT(*Make(spec)->Encode("<x>b"), ElementsAre(10, 1));
  spec.pre_tokenizer[0].scheme = MetaspaceRule::Scheme::kAlways;
  EXPECT_THAT(*Make(spec)->Encode("a<x>b"), ElementsAre(6, 0, 10, 6, 1));
  spec.pre_tokenizer[0].scheme = MetaspaceRule::Scheme::kNever;
  EXPECT_THAT(*Make(spec)->Encode("a b"), ElementsAre(0, 6, 1));
}

TEST(BpeTokenizer, DoesNotMergeAcrossAMetaspaceSplit) {
  BpeSpec spec = Letters();
  spec.vocab["a_"] = 8;
  spec.merges = {{"a", "_"}};
  MetaspaceRule rule;
  rule.replacement = "_";
  rule.scheme = MetaspaceRule::Scheme::kNever;
  rule.split = false;
  spec.pre_tokenizer = {rule};
  EXPECT_THAT(*Make(spec)->Encode("a b"), ElementsAre(8, 1));
  spec.pre_tokenizer[0].split = true;
  EXPECT_THAT(*Make(spec)->Encode("a b"), ElementsAre(0, 6, 1));
}

TEST(BpeTokenizer, AddsTheTemplateAroundTheText) {
  BpeSpec spec = Letters();
  spec.prefix_ids = {6};
  spec.suffix_ids = {2, 2};
  EXPECT_THAT(*Make(spec)->EncodeWithSpecial("ab"), ElementsAre(6, 0, 1, 2, 2));
  EXPECT_THAT(*Make(spec)->Encode("ab"), ElementsAre(0, 1));
}

TEST(BpeTokenizer, JoinsBySpacesWithoutADecoder) {
  BpeSpec spec = Letters();
  spec.decoder.reset();
  EXPECT_EQ(Make(spec)->Decode({0, 1}, false), "a b");
}

TEST(BpeTokenizer, LeavesOutSpecialTokensOnRequest) {
  BpeSpec spec = Letters();
  AddedToken special = Added(10, "<s>");
  special.special = true;
  spec.added_tokens = {special, Added(11, "<t>")};
  EXPECT_EQ(Make(spec)->Decode({10, 0, 11}, true), "a<t>");
  EXPECT_EQ(Make(spec)->Decode({10, 0, 11}, false), "<s>a<t>");
}

TEST(DecodeTokens, SpellsBytesAndMarksBrokenOnes) {
  const std::vector<DecodeStep> steps = {{DecodeStep::Kind::kByteFallback, "", "", 0, 0, true}};
  EXPECT_EQ(DecodeTokens({"a", "<0xC3>", "<0xA9>", "b"}, steps), "a\u00e9b");
  EXPECT_EQ(DecodeTokens({"<0xC3>", "b", "<0xA9>"}, steps), "\uFFFDb\uFFFD");
  EXPECT_EQ(DecodeTokens({"<0xC3>", "<0xA9>", "<0xC3>"}, steps), "\uFFFD\uFFFD\uFFFD");
  EXPECT_EQ(DecodeTokens({"<0xZZ>", "<0x4>"}, steps), "<0xZZ><0x4>");
}

TEST(DecodeTokens, StripsBothEndsOfEveryToken) {
  const std::vector<DecodeStep> steps = {{DecodeStep::Kind::kStrip, "", "x", 1, 2, true}};
  EXPECT_EQ(DecodeTokens({"xxaxxx", "x", ""}, steps), "xax");
}

TEST(DecodeTokens, DropsTheFirstMetaspaceOnly) {
  DecodeStep step{DecodeStep::Kind::kMetaspace, "_", "", 0, 0, true};
  EXPECT_EQ(DecodeTokens({"_a", "_b"}, {step}), "a b");
  step.strip_first = false;
  EXPECT_EQ(DecodeTokens({"_a", "_b"}, {step}), " a b");
}

}  // namespace
}  // namespace freshet
