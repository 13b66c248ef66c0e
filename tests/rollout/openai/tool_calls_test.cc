#include "rollout/openai/tool_calls.h"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <utility>
#include <vector>

namespace freshet::openai {
namespace {

constexpr auto kHermes = ToolCallFormat::kHermes;
constexpr auto kLlama = ToolCallFormat::kLlama3Json;

// Content, then each call as |NAME ARGUMENTS.
std::string Text(const ToolCallParser::Parsed& parsed) {
  std::string text = parsed.content;
  for (const ToolCall& call : parsed.calls) text += "|" + call.name + " " + call.arguments;
  return text;
}

ToolCallParser::Parsed ParseInPieces(ToolCallFormat format, const std::string& text, size_t size) {
  ToolCallParser parser(format);
  ToolCallParser::Parsed all;
  const auto add = [&](ToolCallParser::Parsed part) {
    all.content += part.content;
    for (ToolCall& call : part.calls) all.calls.push_back(std::move(call));
  };
  for (size_t at = 0; at < text.size(); at += size) add(parser.Push(text.substr(at, size)));
  add(parser.Finish());
  return all;
}

struct ParserCase {
  const char* name;
  ToolCallFormat format;
  std::string text;
  std::string want;  // as Text(); "=": the text as content
};

std::string Call(const std::string& object) { return "<tool_call>" + object + "</tool_call>"; }

const std::string kCall = R"({"name": "f", "arguments": {"a": 1}})";
const std::string kLlamaCall = R"({"name": "f", "parameters": {"a": 1}})";
const std::string kSpaces(5000, ' ');
const std::string kDeep = std::string(63, '[') + std::string(63, ']');

const std::vector<ParserCase>& ParserCases() {
  static const std::vector<ParserCase> cases = {
      {"NoneIsContent", ToolCallFormat::kNone, Call(kCall), "="},
      {"HermesEmpty", kHermes, "", ""},
      {"HermesContent", kHermes, "a < b <tool> </tool_call> <tool_cal", "="},
      {"HermesCall", kHermes, "<tool_call>\n" + kCall + "\n</tool_call>", R"(|f {"a": 1})"},
      {"HermesAfterContent", kHermes, "Let me see.\n" + Call(kCall), "Let me see.\n|f {\"a\": 1}"},
      {"HermesSeveral", kHermes, Call(kCall) + "\n" + Call(R"({"arguments":[],"name":"g"})") + "\n",
       R"(|f {"a": 1}|g [])"},
      {"HermesBeforeContent", kHermes, Call(kCall) + "\n Done.", "\n Done.|f {\"a\": 1}"},
      {"HermesBetweenContent", kHermes, "a" + Call(kCall) + " b " + Call(kCall) + " ",
       R"(a b |f {"a": 1}|f {"a": 1})"},
      {"HermesWithoutEnd", kHermes, "<tool_call>" + kCall + "\n", R"(|f {"a": 1})"},
      {"HermesWithHalfAnEnd", kHermes, "<tool_call>" + kCall + "</tool_", "="},
      {"HermesCutOff", kHermes, R"(<tool_call>{"name": "f", "arguments": {"a": 1)", "="},
      {"HermesBytesAsWritten", kHermes,
       Call(R"({"name": "f", "arguments" : { "x":1.50, "y": "\u00e9\"}" ,"é":[ {} ]} })"),
       R"(|f { "x":1.50, "y": "\u00e9\"}" ,"é":[ {} ]})"},
      {"HermesArgumentsOfAnyType", kHermes, Call(R"({"name": "f", "arguments": "{\"a\": 1}"})"),
       R"(|f "{\"a\": 1}")"},
      {"HermesNullArguments", kHermes, Call(R"({"name": "f", "arguments": null})"), "|f null"},
      {"HermesEscapedName", kHermes, Call(R"({"name": "\u0066", "arguments": {}})"), "|f {}"},
      {"HermesTagInAString", kHermes, Call(R"({"name": "f", "arguments": {"a": "</tool_call>"}})"),
       R"(|f {"a": "</tool_call>"})"},
      {"HermesMemberNamesInValues", kHermes,
       Call(R"({"x": {"arguments": 1, "name": "g"}, "name": "f", "arguments": 2})"), "|f 2"},
      {"HermesDepthAtTheBound", kHermes, Call(R"({"name": "f", "arguments": )" + kDeep + "}"),
       "|f " + kDeep},
      {"HermesTooDeep", kHermes, Call(R"({"name": "f", "arguments": [)" + kDeep + "]}"), "="},
      {"HermesTooLong", kHermes,
       Call(R"({"name": "f", "arguments": ")" + std::string(1 << 20, 'x') + "\"}"), "="},
      {"HermesFarFromTheCallBefore", kHermes, Call(kCall) + kSpaces + Call(kCall),
       kSpaces + R"(|f {"a": 1}|f {"a": 1})"},
      {"HermesManySpaces", kHermes, Call(kCall) + kSpaces, kSpaces + R"(|f {"a": 1})"},
      {"HermesFarFromItsEnd", kHermes, Call(kCall + kSpaces), "="},
      {"HermesNoObject", kHermes, Call("oops"), "="},
      {"HermesList", kHermes, Call("[" + kCall + "]"), "="},
      {"HermesNoJson", kHermes, Call(R"({"name": f})"), "="},
      {"HermesEmptyObject", kHermes, Call("{}"), "="},
      {"HermesNothing", kHermes, Call(""), "="},
      {"HermesTwoObjects", kHermes, Call(kCall + kCall), "="},
      {"HermesNoName", kHermes, Call(R"({"arguments": {}})"), "="},
      {"HermesEmptyName", kHermes, Call(R"({"name": "", "arguments": {}})"), "="},
      {"HermesNumberAsName", kHermes, Call(R"({"name": 1, "arguments": {}})"), "="},
      {"HermesNoArguments", kHermes, Call(R"({"name": "f"})"), "="},
      {"HermesParameters", kHermes, Call(kLlamaCall), "="},
      {"HermesNameTwice", kHermes, Call(R"({"name": "f", "name": "g", "arguments": {}})"), "="},
      {"HermesLineFeedInAString", kHermes, Call("{\"name\": \"\n\", \"arguments\": {}}"), "="},
      {"HermesMalformedBetweenCalls", kHermes,
       Call(kCall) + "\n" + Call("oops") + "\n" + Call(kCall),
       "\n<tool_call>oops</tool_call>\n|f {\"a\": 1}|f {\"a\": 1}"},
      {"HermesTagTwice", kHermes, "<tool_call>" + Call(kCall), R"(<tool_call>|f {"a": 1})"},
      {"LlamaEmpty", kLlama, "", ""},
      {"LlamaSpace", kLlama, " \n", "="},
      {"LlamaContent", kLlama, "Hi " + kLlamaCall, "="},
      {"LlamaCall", kLlama, kLlamaCall, R"(|f {"a": 1})"},
      {"LlamaArguments", kLlama, kCall, R"(|f {"a": 1})"},
      {"LlamaSpaceAround", kLlama, "\n" + kLlamaCall + "\n", R"(|f {"a": 1})"},
      {"LlamaTag", kLlama, "<|python_tag|> " + kLlamaCall, R"(|f {"a": 1})"},
      {"LlamaSeveral", kLlama, kLlamaCall + "; " + kLlamaCall + ";" + kLlamaCall + ";",
       R"(|f {"a": 1}|f {"a": 1}|f {"a": 1})"},
      {"LlamaTagEach", kLlama, "<|python_tag|>" + kLlamaCall + ";<|python_tag|>" + kLlamaCall,
       R"(|f {"a": 1}|f {"a": 1})"},
      {"LlamaSemicolonInAString", kLlama, R"({"name": "f", "parameters": {"a": "};{"}})",
       R"(|f {"a": "};{"})"},
      {"LlamaBeforeContent", kLlama, kLlamaCall + "; and", "; and|f {\"a\": 1}"},
      {"LlamaManySpaces", kLlama, kLlamaCall + kSpaces, kSpaces + R"(|f {"a": 1})"},
      {"LlamaCode", kLlama, "<|python_tag|>print({1: 2})", "="},
      {"LlamaTagAlone", kLlama, "<|python_tag|>", "="},
      {"LlamaHalfATag", kLlama, "<|python_t", "="},
      {"LlamaOtherJson", kLlama, R"({"answer": 42}, )" + kLlamaCall, "="},
      {"LlamaNoJson", kLlama, "{x | x > 0} is a set", "="},
      {"LlamaCutOff", kLlama, R"({"name": "f", "parameters": {)", "="},
  };
  return cases;
}

class ToolCallParserTest : public ::testing::TestWithParam<ParserCase> {};

TEST_P(ToolCallParserTest, SeparatesCallsFromContent) {
  const ParserCase& test = GetParam();
  const std::string want = test.want == "=" ? test.text : test.want;
  for (const size_t size : {size_t{1}, size_t{2}, size_t{7}, test.text.size() + 1}) {
    EXPECT_EQ(Text(ParseInPieces(test.format, test.text, size)), want) << size;
  }
}

INSTANTIATE_TEST_SUITE_P(All, ToolCallParserTest, ::testing::ValuesIn(ParserCases()),
                         [](const auto& test) { return std::string(test.param.name); });

TEST(ToolCallParser, HoldsBackOnlyWhatMayBecomeACall) {
  ToolCallParser hermes(kHermes);
  EXPECT_EQ(hermes.Push("a <tool").content, "a ");
  EXPECT_EQ(hermes.Push("s> <").content, "<tools> ");
  EXPECT_EQ(Text(hermes.Push("tool_call>" + kCall)), "");
  EXPECT_EQ(Text(hermes.Push("</tool_call>")), R"(|f {"a": 1})");
  EXPECT_EQ(Text(hermes.Push("\n<tool_call>{")), "");
  EXPECT_EQ(Text(hermes.Push("x")), "\n<tool_call>{x");

  ToolCallParser llama(kLlama);
  EXPECT_EQ(Text(llama.Push(kLlamaCall)), R"(|f {"a": 1})");
  EXPECT_EQ(Text(llama.Push(";")), "");
  EXPECT_EQ(Text(llama.Push(" so")), "; so");
  EXPECT_EQ(Text(llama.Push(kLlamaCall)), kLlamaCall);
}

TEST(ToolCallParser, TakesLongTexts) {  // in linear time
  std::string calls;
  std::string tags;
  for (int i = 0; i < 20'000; ++i) {
    calls += Call(kCall);
    tags += "<tool_call>{\"";
  }
  EXPECT_EQ(ParseInPieces(kHermes, calls, calls.size()).calls.size(), 20'000u);
  EXPECT_EQ(ParseInPieces(kHermes, tags, tags.size()).content, tags);
  const std::string open = R"({"name": ")" + std::string(200'000, 'x');
  EXPECT_EQ(ParseInPieces(kLlama, open, 1).content, open);
}

struct FormatCase {
  const char* name;
  std::string chat_template;
  std::set<std::string, std::less<>> tokens;
  ToolCallFormat want;
  const char* reason;  // part of it
};

class DetectToolCallFormatTest : public ::testing::TestWithParam<FormatCase> {};

TEST_P(DetectToolCallFormatTest, NamesFormatAndReason) {
  const FormatCase& test = GetParam();
  const ToolCallChoice choice = DetectToolCallFormat(
      test.chat_template,
      [&](std::string_view token) { return test.tokens.find(token) != test.tokens.end(); });
  EXPECT_EQ(choice.format, test.want);
  EXPECT_NE(choice.reason.find(test.reason), std::string::npos) << choice.reason;
}

INSTANTIATE_TEST_SUITE_P(
    All, DetectToolCallFormatTest,
    ::testing::Values(FormatCase{"NoTemplate",
                                 "",
                                 {"<tool_call>", "</tool_call>"},
                                 ToolCallFormat::kNone,
                                 "does not mention tools"},
                      FormatCase{"Qwen",
                                 "{% if tools %}<tool_call>\n{\"name\": <function-name>",
                                 {},
                                 kHermes,
                                 "template shows <tool_call>"},
                      FormatCase{"QwenCoder",
                                 "{% if tools %}<tool_call>\n<function=example>",
                                 {},
                                 ToolCallFormat::kNone,
                                 "XML"},
                      FormatCase{"Llama31",
                                 R"({% if tools %}<|python_tag|> "parameters": )",
                                 {},
                                 kLlama,
                                 "template shows <|python_tag|>"},
                      FormatCase{"Llama32",
                                 R"({% if tools %}{"name": f, "parameters": d})",
                                 {"<|python_tag|>"},
                                 kLlama,
                                 "vocabulary has <|python_tag|>"},
                      FormatCase{"Mistral",
                                 "{% if tools %}[TOOL_CALLS]",
                                 {"[TOOL_CALLS]"},
                                 ToolCallFormat::kNone,
                                 "[TOOL_CALLS]"},
                      FormatCase{"TokensOnly",
                                 "{% for t in tools %}",
                                 {"<tool_call>", "</tool_call>"},
                                 kHermes,
                                 "vocabulary has <tool_call>"},
                      FormatCase{"Unknown",
                                 "{% for t in tools %}",
                                 {"<tool_call>"},
                                 ToolCallFormat::kNone,
                                 "known format"}),
    [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace freshet::openai
