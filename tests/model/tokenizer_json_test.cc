// Supported contents of tokenizer.json and tokenizer_config.json, and errors for invalid ones.

#include "base/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "model/tokenizer.h"
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
    "added_tokens": [{"id": 0, "content": "<e>", "special": true}],
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
  EXPECT_EQ(message.find('\n'), std::string::npos);
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

TEST(TokenizerJson, NamesUnsupportedKinds) {
  struct Case {
    const char* part;
    const char* value;
    const char* message;
  };
  const Case cases[] = {
      {"/model/type", R"("Unigram")", "model type Unigram is not supported; supported: BPE"},
      {"/normalizer", R"({"type": "NFC"})", "normalizer type NFC is not supported"},
      {"/normalizer", R"({"type": "Sequence", "normalizers": [{"type": "Lowercase"}]})",
       "normalizer type Lowercase is not supported"},
      {"/normalizer", R"({"type": "Replace", "pattern": {"Regex": "x+"}, "content": ""})",
       "normalizer Replace with a Regex pattern is not supported"},
      {"/pre_tokenizer", R"({"type": "ByteLevel"})",
       "pre_tokenizer type ByteLevel is not supported"},
      {"/decoder", R"({"type": "ByteLevel"})", "decoder type ByteLevel is not supported"},
      {"/post_processor", R"({"type": "BertProcessing"})",
       "post_processor type BertProcessing is not supported"},
      {"/model/end_of_word_suffix", R"("</w>")",
       "model end_of_word_suffix \"</w>\" is not supported"},
      {"/model/dropout", "0.1", "model dropout 0.1 is not supported"},
      {"/added_tokens/0/single_word", "true", "single_word of id 0 is not supported"},
  };
  for (const Case& c : cases) {
    Json json = SmallTokenizer();
    json[Json::json_pointer(c.part)] = Json::parse(c.value);
    EXPECT_THAT(ErrorOf(json), HasSubstr(c.message)) << c.part;
  }
}

TEST(TokenizerJson, RefusesInconsistentContent) {
  struct Case {
    const char* part;
    const char* value;
    const char* message;
  };
  const Case cases[] = {
      {"/model", "null", "model is missing"},
      {"/model/vocab", "{}", "the vocabulary is empty"},
      {"/model/vocab", "[1]", "model has no object vocab"},
      {"/model/vocab/a", "-1", "model id of 'a' is -1, want an integer from 0 to 2097151"},
      {"/model/vocab/a", "2097152", "model id of 'a' is 2097152"},
      {"/model/vocab/a", "18446744073709551615", "model id of 'a' is 18446744073709551615"},
      {"/model/vocab/a", "1.5", "model id of 'a' is 1.5"},
      {"/model/vocab/a", "2", "id 2 belongs to both"},
      {"/model/merges", "null", "model has no list merges"},
      {"/model/merges/0", R"("ab")", "model merge 0 is \"ab\", want a pair of strings"},
      {"/model/merges/0", R"("a b c")", "model merge 0 is \"a b c\""},
      {"/model/merges/0", "7", "model merge 0 is 7"},
      {"/model/merges/0", R"(["a", "z"])", "names 'z', which is not in the vocabulary"},
      {"/model/merges/0", R"(["b", "a"])", "names 'ba', which is not in the vocabulary"},
      {"/model/unk_token", R"("<u>")", "unk_token '<u>' is not in the vocabulary"},
      {"/model/fuse_unk", "1", "model fuse_unk is 1, want true or false"},
      {"/added_tokens", "{}", "added_tokens is not a list"},
      {"/added_tokens/0/content", R"("")", "added token 0 has an empty content"},
      {"/added_tokens/0/id", "5", "added token '<e>' has id 5, but id 0 in the vocabulary"},
      {"/added_tokens/0/content", R"("<x>")", "id 0 belongs to both '<e>' and '<x>'"},
      {"/added_tokens/1", R"({"id": 0, "content": "<e>"})", "added token '<e>' occurs twice"},
      {"/added_tokens/0/content", "null", "added_tokens content is null, want a string"},
      {"/normalizer", R"({"type": "Prepend"})", "normalizer prepend is null, want a string"},
      {"/normalizer", R"({"type": "Sequence"})", "Sequence has no list normalizers"},
      {"/normalizer", "{}", "normalizer has no type"},
      {"/decoder", R"({"type": "Strip", "content": " ", "start": -1, "stop": 0})",
       "Strip start is -1"},
      {"/decoder", R"({"type": "Replace", "pattern": {"String": ""}, "content": "x"})",
       "Replace has an empty pattern"},
      {"/pre_tokenizer", R"({"type": "Metaspace", "replacement": "_", "prepend_scheme": "often"})",
       "prepend_scheme is \"often\", want first, always or never"},
      {"/post_processor", R"({"type": "TemplateProcessing", "single": []})",
       "names the text 0 times, want once"},
      {"/post_processor",
       R"({"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<q>"}}]})",
       "uses '<q>' without special_tokens ids"},
      {"/post_processor",
       R"({"type": "TemplateProcessing", "special_tokens": {"<q>": {"ids": [77]}},
           "single": [{"SpecialToken": {"id": "<q>"}}, {"Sequence": {"id": "A"}}]})",
       "the post-processor adds id 77, which no token has"},
  };
  for (const Case& c : cases) {
    Json json = SmallTokenizer();
    json[Json::json_pointer(c.part)] = Json::parse(c.value);
    EXPECT_THAT(ErrorOf(json), HasSubstr(c.message)) << c.part << " = " << c.value;
  }
}

TEST(TokenizerJson, RefusesDeepSequences) {
  Json step = {{"type", "Fuse"}};
  for (int i = 0; i < 20; ++i) step = {{"type", "Sequence"}, {"decoders", {step}}};
  Json json = SmallTokenizer();
  json["decoder"] = step;
  EXPECT_THAT(ErrorOf(json), HasSubstr("nests Sequences deeper than 8 levels"));
}

TEST(TokenizerJson, RefusesBrokenText) {
  for (const char* text : {"", "{", "[]", "\x00\x01", "{\"model\": \"\xFF\"}"}) {
    const auto tokenizer = ParseTokenizer({{"tokenizer.json", text}}, "dir");
    EXPECT_EQ(tokenizer.status().code(), absl::StatusCode::kInvalidArgument) << text;
  }
}

TEST(TokenizerJson, RefusesAVocabularyWithARepeatedPiece) {
  std::string text = SmallTokenizer().dump();
  text.replace(text.find("\"b\":2"), 5, "\"a\":2");
  EXPECT_THAT(Message(ParseTokenizer({{"tokenizer.json", text}}, "dir").status()),
              HasSubstr("the name 'a' occurs twice"));
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
  EXPECT_THAT(Message(tokenizer.status()), HasSubstr("eos_token '</s>' of tokenizer_config.json"));
}

TEST(TokenizerConfig, RefusesATokenThatIsNoString) {
  const auto tokenizer = ParseTokenizer({{"tokenizer.json", SmallTokenizer().dump()},
                                         {"tokenizer_config.json", R"({"eos_token": 2})"}},
                                        "dir");
  EXPECT_EQ(Message(tokenizer.status()),
            "dir/tokenizer_config.json: eos_token is 2, want a string");
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
