// Supported contents of tokenizer.json and tokenizer_config.json, and errors for invalid ones.

#include "text/tokenizer.h"

#include "base/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/model/test_directory.h"

namespace freshet {
namespace {

using Json = nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

Json SmallTokenizer() {
  return Json::parse(R"({
    "added_tokens": [{"id": 0, "content": "<e>", "single_word": false, "lstrip": false,
                      "rstrip": false, "normalized": false, "special": true}],
    "normalizer": null, "pre_tokenizer": null, "post_processor": null, "decoder": {"type": "Fuse"},
    "model": {"type": "BPE", "vocab": {"<e>": 0, "a": 1, "b": 2, "ab": 3}, "merges": [["a", "b"]]}
  })");
}

absl::StatusOr<std::unique_ptr<Tokenizer>> Parse(const Json& json) {
  return ParseTokenizer({{"tokenizer.json", json.dump()}}, "dir");
}

std::string ErrorOf(const Json& json) {
  const auto tokenizer = Parse(json);
  if (tokenizer.ok()) return "no error";
  EXPECT_EQ(tokenizer.status().code(), absl::StatusCode::kInvalidArgument);
  const std::string message = Message(tokenizer.status());
  EXPECT_THAT(message, StartsWith("dir/tokenizer.json: "));
  EXPECT_EQ(message.find('\n'), std::string::npos) << message;
  return message;
}

TEST(TokenizerJson, ReadsASmallOne) {
  const auto tokenizer = Parse(SmallTokenizer());
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  EXPECT_THAT(*(*tokenizer)->Encode("abba<e>"), ElementsAre(3, 2, 1, 0));
}

TEST(TokenizerJson, ReadsMergesWrittenAsStrings) {
  Json json = SmallTokenizer();
  json["model"]["merges"] = {"a b"};
  EXPECT_THAT(*(*Parse(json))->Encode("ab"), ElementsAre(3));
}

TEST(TokenizerJson, RefusesBrokenContent) {
  struct Case {
    const char* part;
    const char* value;
  };
  const Case cases[] = {
      {"/model", "null"},
      {"/model/type", R"("Trigram")"},
      {"/model/vocab", "[1]"},
      {"/model/vocab", "{}"},
      {"/model/vocab/a", "-1"},
      {"/model/vocab/a", "2097152"},
      {"/model/vocab/a", "18446744073709551615"},
      {"/model/vocab/a", "1.5"},
      {"/model/merges/0", R"("ab")"},
      {"/model/merges/0", R"(["a", "z"])"},
      {"/normalizer", R"({"type": "Prepend"})"},
      {"/normalizer", R"({"type": "Unknown"})"},
      {"/pre_tokenizer", R"({"type": "Metaspace", "replacement": "_", "prepend_scheme": "often"})"},
      {"/pre_tokenizer",
       R"({"type": "Split", "pattern": {"Regex": "(("}, "behavior": "Isolated"})"},
      {"/post_processor", R"({"type": "TemplateProcessing", "single": [{"SpecialToken": {}}]})"},
  };
  for (const Case& c : cases) {
    Json json = SmallTokenizer();
    json["added_tokens"] = Json::array();
    json[Json::json_pointer(c.part)] = Json::parse(c.value);
    EXPECT_NE(ErrorOf(json), "no error") << c.part << " = " << c.value;
  }
}

TEST(TokenizerJson, RefusesBrokenText) {
  const std::string deep = std::string(100'000, '[') + std::string(100'000, ']');
  for (const std::string& text :
       {std::string(), std::string("{"), std::string("[]"), std::string("\0\1", 2),
        std::string("{\"model\": \"\xFF\"}"), deep}) {
    const auto tokenizer = ParseTokenizer({{"tokenizer.json", text}}, "dir");
    EXPECT_EQ(tokenizer.status().code(), absl::StatusCode::kInvalidArgument);
  }
}

TEST(TokenizerJson, SurvivesEveryTruncation) {
  const std::string text = SmallTokenizer().dump();
  for (size_t size = 0; size < text.size(); ++size) {
    EXPECT_FALSE(ParseTokenizer({{"tokenizer.json", text.substr(0, size)}}, "dir").ok()) << size;
  }
}

TEST(Tokenizer, NamesTheCharacterThatTheVocabularyLacks) {
  const auto ids = (*Parse(SmallTokenizer()))->Encode("abx");
  EXPECT_EQ(Message(ids.status()), "character 'x' (U+0078) is not in the tokenizer's vocabulary");
}

TEST(Tokenizer, RefusesTextThatIsNotUtf8) {
  EXPECT_EQ(Message((*Parse(SmallTokenizer()))->Encode("ab\xC3").status()),
            "text is not UTF-8 at byte 2");
}

TEST(Tokenizer, EncodesSpecialTokensAsPlainTextOnRequest) {
  Json json = SmallTokenizer();
  for (const char* piece : {"<", "e", ">"})
    json["model"]["vocab"][piece] = json["model"]["vocab"].size();
  const auto tokenizer = Parse(json);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  EXPECT_THAT(*(*tokenizer)->Encode("a<e>"), ElementsAre(1, 0));
  EXPECT_THAT(*(*tokenizer)->Encode("a<e>", SpecialTokens::kPlain), ElementsAre(1, 4, 5, 6));
}

TEST(TokenizerJson, KeepsGapsInTheIds) {
  Json json = SmallTokenizer();
  json["model"]["vocab"]["c"] = 1000;
  const auto tokenizer = Parse(json);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  EXPECT_EQ((*tokenizer)->vocab_size(), 1001);
  EXPECT_EQ((*tokenizer)->Decode({1, 500, 1000}, false), "ac");
}

TEST(TokenizerConfig, GivesBosAndEos) {
  const auto tokenizer = ParseTokenizer(
      {{"tokenizer.json", SmallTokenizer().dump()},
       {"tokenizer_config.json", R"({"bos_token": "a", "eos_token": {"content": "<e>"}})"}},
      "dir");
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  EXPECT_EQ((*tokenizer)->bos_id(), 1);
  EXPECT_EQ((*tokenizer)->eos_id(), 0);
}

TEST(TokenizerConfig, MayBeAbsentOrNull) {
  EXPECT_EQ((*Parse(SmallTokenizer()))->eos_id(), std::nullopt);
  const auto tokenizer = ParseTokenizer({{"tokenizer.json", SmallTokenizer().dump()},
                                         {"tokenizer_config.json", R"({"bos_token": null})"}},
                                        "dir");
  ASSERT_TRUE(tokenizer.ok());
  EXPECT_EQ((*tokenizer)->bos_id(), std::nullopt);
}

TEST(TokenizerConfig, RefusesATokenThatIsUnknown) {
  const auto tokenizer = ParseTokenizer({{"tokenizer.json", SmallTokenizer().dump()},
                                         {"tokenizer_config.json", R"({"eos_token": "</s>"})"}},
                                        "dir");
  EXPECT_EQ(Message(tokenizer.status()),
            "dir/tokenizer_config.json: eos_token \"</s>\" is not in the vocabulary");
}

TEST(TokenizerConfig, RefusesATokenThatIsNoString) {
  const auto tokenizer = ParseTokenizer({{"tokenizer.json", SmallTokenizer().dump()},
                                         {"tokenizer_config.json", R"({"eos_token": 2})"}},
                                        "dir");
  EXPECT_EQ(Message(tokenizer.status()),
            "dir/tokenizer_config.json: eos_token is 2, want a string");
}

TEST(TokenizerConfig, FlagsSayWhichTokensAreAdded) {
  const auto ids = [](const char* flags) {
    const auto tokenizer = ParseTokenizer(
        {{"tokenizer.json", SmallTokenizer().dump()},
         {"tokenizer_config.json", StrCat(R"({"bos_token": "b", "eos_token": "<e>")", flags, "}")}},
        "dir");
    return *(*tokenizer)->EncodeWithSpecial("a");
  };
  EXPECT_THAT(ids(""), ElementsAre(1));
  EXPECT_THAT(ids(R"(, "add_bos_token": true)"), ElementsAre(2, 1));
  EXPECT_THAT(ids(R"(, "add_eos_token": true)"), ElementsAre(1, 0));
  EXPECT_THAT(ids(R"(, "add_bos_token": false)"), ElementsAre(1));
}

TEST(TokenizerConfig, RefusesAddedTokensThatTokenizerJsonLacks) {
  const auto error = [](const char* tokens) {
    return Message(ParseTokenizer({{"tokenizer.json", SmallTokenizer().dump()},
                                   {"tokenizer_config.json",
                                    StrCat(R"({"added_tokens_decoder": {)", tokens, "}}")}},
                                  "dir")
                       .status());
  };
  EXPECT_EQ(error(R"("0": {"content": "<e>"})"), "");
  EXPECT_THAT(error(R"("7": {"content": "<e>"})"), HasSubstr("id 7, tokenizer.json with id 0"));
  EXPECT_THAT(error(R"("9": {"content": "<x>"})"), HasSubstr("tokenizer.json does not have it"));
}

TEST(LoadTokenizer, KeepsTheFilesAsTheyAre) {
  const TestDirectory dir;
  dir.Write("tokenizer.json", SmallTokenizer().dump());
  dir.Write("chat_template.jinja", "{{ messages }}");
  const auto tokenizer = LoadTokenizer(dir.path());
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  ASSERT_EQ((*tokenizer)->Files().size(), 2U);
  EXPECT_EQ((*tokenizer)->Files()[0].content, SmallTokenizer().dump());
  EXPECT_EQ((*tokenizer)->Files()[1].name, "chat_template.jinja");
}

TEST(LoadTokenizer, SaysThatThereIsNone) {
  const TestDirectory dir;
  const auto tokenizer = LoadTokenizer(dir.path());
  EXPECT_EQ(tokenizer.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(Message(tokenizer.status()), HasSubstr("there is no tokenizer.json"));
}

TEST(LoadTokenizer, RefusesAHugeFile) {
  const TestDirectory dir;
  dir.Write("tokenizer.json", "{}");
  std::filesystem::resize_file(dir.File("tokenizer.json"), (64U << 20) + 1);
  EXPECT_THAT(Message(LoadTokenizer(dir.path()).status()), HasSubstr("more than the limit"));
}

}  // namespace
}  // namespace freshet
