// Compares ids and text of all recorded cases with the Hugging Face tokenizers library.

#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_replace.h"
#include "base/str_cat.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/model/test_directory.h"
#include "text/tokenizer.h"

namespace freshet {
namespace {

using Json = nlohmann::ordered_json;  // templates print names in order

struct Reference {
  const char* name;
  const char* tokenizer;
  const char* cases;
};
void PrintTo(const Reference& reference, std::ostream* out) { *out << reference.name; }

class TokenizerParity : public ::testing::TestWithParam<Reference> {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists(ReferencePath(GetParam().cases))) {
      GTEST_SKIP() << "no reference data at " << ReferencePath(GetParam().cases);
    }
    auto tokenizer = LoadTokenizer(ReferencePath(GetParam().tokenizer));
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
    tokenizer_ = *std::move(tokenizer);
  }

  // Calls `check` for each line; returns the number of lines.
  template <typename Check>
  int ForEachCase(const std::string& file, const Check& check) {
    std::ifstream stream(ReferencePath(GetParam().cases) + "/" + file, std::ios::binary);
    int num_cases = 0;
    for (std::string line; std::getline(stream, line, '\n'); ++num_cases) {
      check(Json::parse(line), num_cases + 1);
      if (::testing::Test::HasFailure()) break;
    }
    return num_cases;
  }

  void CheckDecode(const Json& row, int line) {
    const auto ids = row["ids"].get<std::vector<int32_t>>();
    const auto decoded = row["decoded"].get<std::string>();
    EXPECT_EQ(tokenizer_->Decode(ids, false), decoded) << "line " << line;
    EXPECT_EQ(tokenizer_->Decode(ids, true), row.value("decoded_skip", decoded)) << "line " << line;
  }

  std::unique_ptr<Tokenizer> tokenizer_;
};

// A tokenizer of the Llama 2 kind puts a space before every piece of text.
std::string WithoutSpaces(const std::string& text) {
  return absl::StrReplaceAll(text, {{" ", ""}});
}

TEST_P(TokenizerParity, EncodesAndDecodesEveryCase) {
  const int num_cases = ForEachCase("cases.jsonl", [&](const Json& row, int line) {
    const auto text = row["text"].get<std::string>();
    const auto ids = tokenizer_->Encode(text);
    ASSERT_TRUE(ids.ok()) << "line " << line << ": " << ids.status();
    EXPECT_EQ(*ids, row["ids"].get<std::vector<int32_t>>()) << "line " << line;
    if (row.contains("ids_auto")) {
      EXPECT_EQ(*tokenizer_->EncodeWithSpecial(text), row["ids_auto"].get<std::vector<int32_t>>())
          << "line " << line;
    }
    CheckDecode(row, line);
  });
  EXPECT_GT(num_cases, 2000);
}

TEST_P(TokenizerParity, DecodesEveryIdList) {
  const int num_cases =
      ForEachCase("decode_cases.jsonl", [&](const Json& row, int line) { CheckDecode(row, line); });
  EXPECT_EQ(num_cases, 400);
}

// Joined, the pieces are the text of all ids. Where that has broken characters, a tokenizer with
// byte fallback also gives up intact ones beside them, which a stream has returned already.
TEST_P(TokenizerParity, DecodesTokenByToken) {
  const bool byte_level = absl::StrContains(GetParam().cases, "bpe_2048") ||
                          absl::StrContains(GetParam().cases, "bpe_4096");
  for (const char* file : {"cases.jsonl", "decode_cases.jsonl"}) {
    ForEachCase(file, [&](const Json& row, int line) {
      const auto decoder = tokenizer_->MakeStreamDecoder(/*skip_special=*/false);
      std::string text;
      for (const int32_t id : row["ids"].get<std::vector<int32_t>>()) text += decoder->Push(id);
      text += decoder->Finish();
      const auto decoded = row["decoded"].get<std::string>();
      if (byte_level || !absl::StrContains(decoded, "\uFFFD")) {
        EXPECT_EQ(text, decoded) << file << " line " << line;
      }
    });
  }
}

TEST_P(TokenizerParity, RendersAndEncodesEveryConversation) {
  const int num_cases = ForEachCase("chat_cases.jsonl", [&](const Json& row, int line) {
    ChatRequest request;
    request.messages = row["messages"].dump();
    request.tools = row["tools"].dump();
    request.kwargs = row["kwargs"].dump();
    request.add_generation_prompt = row["add_generation_prompt"];
    const auto rendered = tokenizer_->RenderChat(request);
    if (row.contains("error")) {
      EXPECT_EQ(Message(rendered.status()), row["error"].get<std::string>()) << "line " << line;
      return;
    }
    ASSERT_TRUE(rendered.ok()) << "line " << line << ": " << rendered.status();
    EXPECT_EQ(*rendered, row["rendered"].get<std::string>()) << "line " << line;
    EXPECT_EQ(*tokenizer_->Encode(*rendered), row["ids"].get<std::vector<int32_t>>())
        << "line " << line;
    // Special tokens that messages contain are the only difference.
    const auto ids = tokenizer_->EncodeChat(request);
    ASSERT_TRUE(ids.ok()) << "line " << line << ": " << ids.status();
    if (row["name"] == "literal special tokens") {
      EXPECT_EQ(WithoutSpaces(tokenizer_->Decode(*ids, false)),
                WithoutSpaces(tokenizer_->Decode(row["ids"], false)));
    } else {
      EXPECT_EQ(*ids, row["ids"].get<std::vector<int32_t>>()) << "line " << line;
    }
  });
  EXPECT_GE(num_cases, 78);
}

INSTANTIATE_TEST_SUITE_P(
    All, TokenizerParity,
    ::testing::Values(
        Reference{"Stories260K", "stories260K/hf", "tokenizers/stories260K"},
        Reference{"SpmBpe2600", "tokenizers/spm_bpe_2600", "tokenizers/spm_bpe_2600"},
        Reference{"Gpt2Bpe2048", "tokenizers/gpt2_bpe_2048", "tokenizers/gpt2_bpe_2048"},
        Reference{"ChatmlBpe4096", "tokenizers/chatml_bpe_4096", "tokenizers/chatml_bpe_4096"}),
    [](const auto& reference) { return reference.param.name; });

}  // namespace
}  // namespace freshet
