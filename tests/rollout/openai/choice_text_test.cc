#include "rollout/openai/choice_text.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "text/char_tokenizer.h"

namespace freshet::openai {
namespace {

using testing::ElementsAre;

constexpr char kLetters[] = "abcdefgh";

class ChoiceTextTest : public testing::Test {
 protected:
  // What becomes visible with each character of `text` and at the end.
  std::vector<std::string> Pieces(const std::string& text, const std::vector<std::string>& stops,
                                  bool include_stop = false) {
    ChoiceText choice(stops, include_stop, tokenizer_->MakeStreamDecoder(true));
    std::vector<std::string> pieces;
    const std::vector<int32_t> ids = *tokenizer_->Encode(text);
    for (const int32_t id : ids) pieces.push_back(choice.Push(id));
    pieces.push_back(choice.Finish());
    stopped_by_ = choice.stopped_by().value_or("");
    return pieces;
  }

  const std::unique_ptr<Tokenizer> tokenizer_ = *CreateCharTokenizer(kLetters);
  std::string stopped_by_;
};

TEST_F(ChoiceTextTest, ShowsTextAtOnceWithoutStops) {
  EXPECT_THAT(Pieces("abc", {}), ElementsAre("a", "b", "c", ""));
  EXPECT_EQ(stopped_by_, "");
}

TEST_F(ChoiceTextTest, CutsTheStopString) {
  EXPECT_THAT(Pieces("abcd", {"cd"}), ElementsAre("a", "b", "", "", ""));
  EXPECT_EQ(stopped_by_, "cd");
  EXPECT_THAT(Pieces("abcdef", {"cd"}), ElementsAre("a", "b", "", "", "", "", ""));
}

TEST_F(ChoiceTextTest, KeepsTheStopStringIfAsked) {
  EXPECT_THAT(Pieces("abcd", {"cd"}, /*include_stop=*/true), ElementsAre("a", "b", "", "cd", ""));
}

TEST_F(ChoiceTextTest, HoldsBackOnlyWhatMayBecomeAStopString) {
  EXPECT_THAT(Pieces("abacd", {"abc"}), ElementsAre("", "", "ab", "ac", "d", ""));
  EXPECT_THAT(Pieces("aab", {"aac", "b"}), ElementsAre("", "", "aa", ""));
  EXPECT_EQ(stopped_by_, "b");
}

TEST_F(ChoiceTextTest, ShowsHeldTextAtTheEnd) {
  EXPECT_THAT(Pieces("hab", {"abc"}), ElementsAre("h", "", "", "ab"));
  EXPECT_EQ(stopped_by_, "");
}

TEST_F(ChoiceTextTest, TheFirstOfSeveralStopStringsCuts) {
  EXPECT_THAT(Pieces("abcd", {"cd", "bcd"}), ElementsAre("a", "", "", "", ""));
  EXPECT_EQ(stopped_by_, "bcd");
}

TEST_F(ChoiceTextTest, TokenTextIncludesSpecialTokens) {
  EXPECT_EQ(TokenText(*tokenizer_, 1), "b");
  EXPECT_EQ(TokenText(*tokenizer_, *tokenizer_->eos_id()), "</s>");
}

}  // namespace
}  // namespace freshet::openai
