#include "text/char_tokenizer.h"

#include <string>
#include <vector>

#include "base/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace freshet {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::unique_ptr<Tokenizer> Make(const std::string& alphabet) {
  auto tokenizer = CreateCharTokenizer(alphabet);
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
  return *std::move(tokenizer);
}

TEST(CharTokenizer, NumbersCharactersInOrder) {
  const auto tokenizer = Make("0123456789+=");
  EXPECT_THAT(*tokenizer->Encode("12+34="), ElementsAre(1, 2, 10, 3, 4, 11));
  EXPECT_EQ(tokenizer->vocab_size(), 13);  // 12 characters + end token
  EXPECT_EQ(tokenizer->eos_id(), 12);
  EXPECT_EQ(tokenizer->bos_id(), std::nullopt);
}

TEST(CharTokenizer, DecodesWithoutSeparators) {
  const auto tokenizer = Make("0123456789+=");
  EXPECT_EQ(tokenizer->Decode({0, 4, 6, 12}, false), "046</s>");
  EXPECT_EQ(tokenizer->Decode({0, 4, 6, 12}, true), "046");
  EXPECT_EQ(tokenizer->Decode({}, false), "");
}

TEST(CharTokenizer, LeavesOutIdsOutsideOfTheVocabulary) {
  EXPECT_EQ(Make("ab")->Decode({0, -1, 3, 1, 2'000'000'000}, false), "ab");
}

TEST(CharTokenizer, EncodesEmptyText) { EXPECT_TRUE(Make("a")->Encode("")->empty()); }

TEST(CharTokenizer, RecognisesTheEndTokenInText) {
  EXPECT_THAT(*Make("</s>ab")->Encode("a</s>b<"), ElementsAre(4, 6, 5, 0));
}

TEST(CharTokenizer, TreatsSpacesAndOtherScriptsAsCharacters) {
  const auto tokenizer = Make(" \n\u00e9\u6570\U0001F600\"\\");
  EXPECT_THAT(*tokenizer->Encode("\U0001F600 \u6570\u00e9\n\\\""),
              ElementsAre(4, 0, 3, 2, 1, 6, 5));
  EXPECT_EQ(tokenizer->Decode({4, 0, 3}, true), "\U0001F600 \u6570");
}

TEST(CharTokenizer, AddsNoSpecialTokens) {
  EXPECT_THAT(*Make("ab")->EncodeWithSpecial("ab"), ElementsAre(0, 1));
}

TEST(CharTokenizer, NamesTheCharacterOutsideOfTheAlphabet) {
  const auto ids = Make("0123456789")->Encode("12x");
  EXPECT_EQ(ids.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Message(ids.status()), "character 'x' (U+0078) is not in the tokenizer's vocabulary");
  EXPECT_THAT(Message(Make("a")->Encode("\n").status()), HasSubstr("character U+000A is not"));
}

TEST(CharTokenizer, RefusesTextThatIsNotUtf8) {
  EXPECT_EQ(Message(Make("ab")->Encode("ab\xC3").status()), "text is not UTF-8 at byte 2");
}

TEST(CharTokenizer, RefusesBadAlphabets) {
  EXPECT_THAT(Message(CreateCharTokenizer("").status()), HasSubstr("alphabet is empty"));
  EXPECT_THAT(Message(CreateCharTokenizer("abca").status()), HasSubstr("repeats 'a' (U+0061)"));
  EXPECT_THAT(Message(CreateCharTokenizer("a\xED\xA0\x80").status()),
              HasSubstr("not UTF-8 at byte 1"));
}

TEST(CharTokenizer, ItsFilesReadBackTheSame) {
  const auto tokenizer = Make("0123456789+= \u00e9");
  const auto again = ParseTokenizer(tokenizer->Files(), "again");
  ASSERT_TRUE(again.ok()) << again.status();
  const std::string text = "1+2= \u00e9</s>";
  EXPECT_EQ(*(*again)->Encode(text), *tokenizer->Encode(text));
  EXPECT_EQ((*again)->Decode(*tokenizer->Encode(text), false), text);
  EXPECT_EQ((*again)->eos_id(), tokenizer->eos_id());
  EXPECT_EQ((*again)->vocab_size(), tokenizer->vocab_size());
}

TEST(CharTokenizer, WritesWhatTransformersLoads) {
  const auto tokenizer = Make("ab");
  ASSERT_EQ(tokenizer->Files().size(), 2U);
  const auto config = nlohmann::json::parse(tokenizer->Files()[1].content);
  EXPECT_EQ(config["tokenizer_class"], "PreTrainedTokenizerFast");
  EXPECT_EQ(config["eos_token"], "</s>");
  EXPECT_EQ(config["added_tokens_decoder"]["2"]["content"], "</s>");
  const auto json = nlohmann::json::parse(tokenizer->Files()[0].content);
  EXPECT_EQ(json["model"]["vocab"], (nlohmann::json{{"a", 0}, {"b", 1}, {"</s>", 2}}));
}

}  // namespace
}  // namespace freshet
