#include "rollout/engine/stop_strings.h"

#include "gtest/gtest.h"
#include "text/char_tokenizer.h"

namespace freshet {
namespace {

// Number of tokens after which the text is found to hold a stop string; 0: never.
int FoundAfter(const std::vector<std::string>& texts, const std::string& response) {
  const auto tokenizer = *CreateCharTokenizer("abcd\u00e9");
  const StopStrings stops(texts, *tokenizer);
  const std::unique_ptr<StopMatcher> matcher = stops.MakeMatcher();
  int tokens = 0;
  const std::vector<int32_t> ids = *tokenizer->Encode(response);
  for (const int32_t id : ids) {
    ++tokens;
    if (matcher->Add(id)) return tokens;
  }
  return 0;
}

TEST(StopStrings, AreFoundAcrossTokens) {
  EXPECT_EQ(FoundAfter({"bc"}, "abcd"), 3);
  EXPECT_EQ(FoundAfter({"bc"}, "abdc"), 0);
  EXPECT_EQ(FoundAfter({"a"}, "ba"), 2);
  EXPECT_EQ(FoundAfter({"aab"}, "aaab"), 4);
  EXPECT_EQ(FoundAfter({"cd", "b"}, "abcd"), 2);
  EXPECT_EQ(FoundAfter({"\u00e9a"}, "b\u00e9ab"), 3);
}

TEST(StopStrings, EveryResponseHasItsOwnText) {
  const auto tokenizer = *CreateCharTokenizer("ab");
  const StopStrings stops({"ab"}, *tokenizer);
  const auto first = stops.MakeMatcher();
  const auto second = stops.MakeMatcher();
  EXPECT_FALSE(first->Add(0));
  EXPECT_FALSE(second->Add(1));
  EXPECT_TRUE(first->Add(1));
}

}  // namespace
}  // namespace freshet
