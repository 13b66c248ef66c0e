#include "text/row_tokens.h"

#include "base/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "text/char_tokenizer.h"

namespace freshet {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(RowTokens, AnAnswerEndsWithTheEndToken) {
  const auto tokenizer = *CreateCharTokenizer("0123456789=");
  EXPECT_THAT(*EncodeAnswer(*tokenizer, {}, {{"answer", "42"}}, "here"), ElementsAre(4, 2, 11));
  EXPECT_THAT(Message(EncodeAnswer(*tokenizer, {}, {{"answer", "4x"}}, "here").status()),
              HasSubstr("here: answer: "));
  EXPECT_THAT(Message(EncodeAnswer(*tokenizer, {}, {}, "here").status()),
              HasSubstr("dataset.answer"));
}

TEST(RowTokens, AnAnswerInAChatHasNoControlTokens) {
  const auto tokenizer = *CreateCharTokenizer("</s>1");
  job::v1::Dataset dataset;
  EXPECT_THAT(*EncodeAnswer(*tokenizer, dataset, {{"answer", "1</s>"}}, ""), ElementsAre(4, 5, 5));
  dataset.mutable_chat();
  EXPECT_THAT(*EncodeAnswer(*tokenizer, dataset, {{"answer", "1</s>"}}, ""),
              ElementsAre(4, 0, 1, 2, 3, 5));
}

TEST(RowTokens, APromptHasTheTokensThatTheTokenizerAdds) {
  const auto tokenizer = *CreateCharTokenizer("7=");
  EXPECT_EQ(*EncodePrompt(*tokenizer, {}, "7="), *tokenizer->EncodeWithSpecial("7="));
}

TEST(RowTokens, ADeepConversationIsRefused) {
  const auto tokenizer = *CreateCharTokenizer("7=");
  job::v1::Dataset dataset;
  dataset.mutable_chat();
  const std::string deep = std::string(100'000, '[') + std::string(100'000, ']');
  EXPECT_EQ(
      EncodePrompt(*tokenizer, dataset, StrCat(R"({"messages": )", deep, "}")).status().code(),
      absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace freshet
