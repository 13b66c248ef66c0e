// Compares ids and text of all recorded cases with the Hugging Face tokenizers library.

#include <fstream>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "model/tokenizer.h"
#include "nlohmann/json.hpp"
#include "tests/model/test_directory.h"

namespace freshet {
namespace {

using Json = nlohmann::json;

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

INSTANTIATE_TEST_SUITE_P(All, TokenizerParity,
                         ::testing::Values(Reference{"Stories260K", "stories260K/hf",
                                                     "tokenizers/stories260K"},
                                           Reference{"SpmBpe2600", "tokenizers/spm_bpe_2600",
                                                     "tokenizers/spm_bpe_2600"}),
                         [](const auto& reference) { return reference.param.name; });

}  // namespace
}  // namespace freshet
