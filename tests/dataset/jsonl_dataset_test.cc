#include "dataset/jsonl_dataset.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "base/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/sanitized.h"

namespace freshet {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

class JsonlDatasetTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (std::filesystem::temp_directory_path() / "jsonl_XXXXXX").string();
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
    options_.path = folder_ + "/d.jsonl";
    options_.dataset.set_prompt("{question}");
    options_.dataset.set_answer("answer");
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  absl::StatusOr<std::unique_ptr<JsonlDataset>> Load(const std::string& contents) {
    std::ofstream(options_.path, std::ios::binary) << contents;
    return JsonlDataset::Load(options_, DataRoots::Unlimited());
  }
  // The error message of loading `contents`, without the folder.
  std::string ConfigError(const std::string& contents) {
    const auto dataset = Load(contents);
    EXPECT_EQ(dataset.status().code(), absl::StatusCode::kInvalidArgument);
    std::string message(dataset.status().message());
    for (size_t at = message.find(folder_); at != std::string::npos; at = message.find(folder_)) {
      message.erase(at, folder_.size() + 1);
    }
    return message;
  }
  DatasetRow OnlyRow(const std::string& contents) {
    const auto dataset = Load(contents);
    EXPECT_TRUE(dataset.ok()) << dataset.status();
    if (!dataset.ok()) return {};
    EXPECT_EQ((*dataset)->size(), 1);
    return *(*dataset)->Get(0);
  }

  std::string folder_;
  JsonlDatasetOptions options_;
};

TEST_F(JsonlDatasetTest, LoadsRowsWithAllTheirFields) {
  options_.dataset.set_prompt("Q: {question}\nA:");
  const DatasetRow row =
      OnlyRow(R"({"question": "1+1?", "answer": "2", "level": 3, "share": 0.1, "ok": true, )"
              R"("none": null, "tags": ["a", {"b": 1}]})");
  EXPECT_EQ(row.prompt, "Q: 1+1?\nA:");
  EXPECT_THAT(row.attributes,
              testing::ElementsAre(testing::Pair("answer", "2"), testing::Pair("level", "3"),
                                   testing::Pair("ok", "true"), testing::Pair("question", "1+1?"),
                                   testing::Pair("share", "0.1"),
                                   testing::Pair("tags", R"(["a",{"b":1}])")));
}

TEST_F(JsonlDatasetTest, APromptIsAUserMessageWithChat) {
  options_.dataset.mutable_chat()->set_system("Be brief.");
  EXPECT_EQ(OnlyRow(R"({"question": "1+1?", "answer": "2"})").prompt,
            R"({"messages":[{"role":"system","content":"Be brief."},)"
            R"({"role":"user","content":"1+1?"}]})");
}

TEST_F(JsonlDatasetTest, TakesMessagesAndToolsInTheirOrder) {
  options_.dataset.clear_prompt();
  options_.dataset.mutable_chat()->set_messages("turns");
  options_.dataset.mutable_chat()->set_tools("functions");
  options_.dataset.mutable_chat()->set_system("Be brief.");
  EXPECT_EQ(OnlyRow(R"({"answer": "2", "turns": [{"role": "system", "content": "s", "a": 1}], )"
                    R"("functions": [{"name": "f", "description": "d"}]})")
                .prompt,
            R"({"messages":[{"role":"system","content":"s","a":1}],)"
            R"("tools":[{"name":"f","description":"d"}]})");
  const std::string answer = R"("answer": "2"})";
  EXPECT_THAT(ConfigError("{" + answer), HasSubstr("field 'turns' is missing"));
  EXPECT_THAT(ConfigError(R"({"turns": "hi", )" + answer), HasSubstr("is not a JSON list"));
  EXPECT_THAT(ConfigError(R"({"turns": [], )" + answer), HasSubstr("field 'turns' is empty"));
  EXPECT_THAT(ConfigError(R"({"turns": ["hi"], )" + answer), HasSubstr("a message without a role"));
}

TEST_F(JsonlDatasetTest, MessagesInATextFieldAreBoundedToo) {
  options_.dataset.clear_prompt();
  options_.dataset.mutable_chat()->set_messages("turns");
  const std::string deep = std::string(100'000, '[') + std::string(100'000, ']');
  EXPECT_THAT(ConfigError(StrCat(R"({"answer": "2", "turns": ")", deep, "\"}")),
              HasSubstr("field 'turns'"));
}

TEST_F(JsonlDatasetTest, AnObjectOfManyMembersIsReadInLinearTime) {
  std::string row = R"({"question": "q", "answer": "a", "big": {)";
  for (int i = 0; i < 100'000; ++i) row += StrCat(i > 0 ? "," : "", "\"", i, "\":0");
  EXPECT_EQ(OnlyRow(row + "}}").prompt, "q");
}

TEST_F(JsonlDatasetTest, SkipsBlankLinesMarkAndCarriageReturns) {
  const auto dataset = Load(
      "\xEF\xBB\xBF{\"question\": \"a\", \"answer\": \"1\"}\r\n\r\n  \n"
      "{\"question\": \"b\", \"answer\": \"2\"}");
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  ASSERT_EQ((*dataset)->size(), 2);
  EXPECT_EQ((*dataset)->Get(1)->prompt, "b");
  EXPECT_EQ((*dataset)->Where(0), options_.path + ":1");
  EXPECT_EQ((*dataset)->Where(1), options_.path + ":4");
  EXPECT_EQ((*dataset)->Get(2).status().code(), absl::StatusCode::kOutOfRange);
  EXPECT_EQ((*dataset)->Get(-1).status().code(), absl::StatusCode::kOutOfRange);
}

TEST_F(JsonlDatasetTest, FindsFieldsUnderTheirUsualNames) {
  const DatasetRow row = OnlyRow(R"({"problem": "p", "ground_truth": "g"})");
  EXPECT_EQ(row.prompt, "p");
  EXPECT_EQ(row.attributes.at("answer"), "g");
  EXPECT_EQ(row.attributes.at("question"), "p");
  EXPECT_EQ(row.attributes.at("problem"), "p");
}

TEST_F(JsonlDatasetTest, PrefersTheNamedFieldOverItsAliases) {
  const DatasetRow row =
      OnlyRow(R"({"question": "q", "problem": "p", "answer": "a", "solution": "s"})");
  EXPECT_EQ(row.prompt, "q");
  EXPECT_EQ(row.attributes.at("answer"), "a");
}

TEST_F(JsonlDatasetTest, RefusesToChooseBetweenAliases) {
  EXPECT_EQ(ConfigError(R"({"problem": "p", "input": "i", "answer": "a"})"),
            "d.jsonl:1: field 'question' is missing, and both 'problem' and 'input' could stand "
            "for it; name the one to use");
}

TEST_F(JsonlDatasetTest, AnswersFromTheNamedField) {
  options_.dataset.set_answer("final");
  const DatasetRow row = OnlyRow(R"({"question": "q", "final": "f", "answer": "a"})");
  EXPECT_EQ(row.attributes.at("answer"), "f");
}

TEST_F(JsonlDatasetTest, NeedsNoAnswerWhenNoneIsNamed) {
  options_.dataset.set_answer("");
  EXPECT_EQ(OnlyRow(R"({"question": "q"})").attributes.count("answer"), 0u);
}

TEST_F(JsonlDatasetTest, MapsFieldNames) {
  auto& fields = *options_.dataset.mutable_fields();
  fields["question"] = "q text";
  fields["name"] = "who";
  const DatasetRow row = OnlyRow(R"({"q text": "q", "who": "Lily", "answer": "a"})");
  EXPECT_EQ(row.prompt, "q");
  EXPECT_EQ(row.attributes.at("name"), "Lily");
}

TEST_F(JsonlDatasetTest, DoesNotGuessForAMappedField) {
  (*options_.dataset.mutable_fields())["question"] = "query";
  EXPECT_EQ(ConfigError(R"({"problem": "p", "answer": "a"})"),
            "d.jsonl:1: field 'query' is missing; the row has answer, problem");
}

TEST_F(JsonlDatasetTest, ReportsRequiredFields) {
  options_.required = {"name"};
  EXPECT_EQ(ConfigError(R"({"question": "p", "answer": "a"})"),
            "d.jsonl:1: field 'name' is missing; the row has answer, question");
}

TEST_F(JsonlDatasetTest, ReportsAtMostFiveFaultsByLine) {
  std::string contents = "{\"question\": \"q\", \"answer\": \"a\"}\n";
  for (int i = 0; i < 7; ++i) contents += "{\"question\": \"q\"}\n";
  const std::string line = ": field 'answer' is missing; the row has question\n";
  EXPECT_EQ(ConfigError(contents), StrCat("d.jsonl:2", line, "d.jsonl:3", line, "d.jsonl:4", line,
                                          "d.jsonl:5", line, "d.jsonl:6", line, "and 2 more"));
}

TEST_F(JsonlDatasetTest, RefusesHostileLines) {
  const std::string ok = "{\"question\": \"q\", \"answer\": \"a\"}";
  const std::string deep_in_row = "{\"question\": \"q\", \"answer\": \"a\", \"x\": ";
  const struct {
    const char* name;
    std::string line;
    const char* error;
  } cases[] = {
      {"array", "[1, 2]", "a JSON array where an object is wanted"},
      {"string", "\"q\"", "a JSON string where an object is wanted"},
      {"null", "null", "a JSON null where an object is wanted"},
      {"cut", "{\"question\": \"q", "not valid JSON or UTF-8 at byte "},
      {"two rows", ok + ok, "not valid JSON or UTF-8 at byte 33"},
      {"binary",
       "\x7F"
       "ELF\x02\x01",
       "not valid JSON or UTF-8 at byte 1"},
      {"invalid UTF-8", "{\"question\": \"\xC3(\", \"answer\": \"a\"}",
       "not valid JSON or UTF-8 at byte 16"},
      {"lone surrogate", "{\"question\": \"\\ud800\", \"answer\": \"a\"}",
       "not valid JSON or UTF-8 at byte "},
      {"NUL after a row", ok + std::string("\0x", 2), "NUL byte at byte 33"},
      {"NUL in a string", std::string("{\"question\": \"\0\", \"answer\": \"a\"}", 31),
       "NUL byte at byte 15"},
      {"deep arrays", std::string(100000, '['), "JSON nested deeper than 32 levels"},
      {"deep objects", deep_in_row + std::string(32, '[') + std::string(32, ']') + "}",
       "JSON nested deeper than 32 levels"},
      {"empty prompt", "{\"question\": \"\", \"answer\": \"a\"}", "the prompt is empty"},
      {"null field", "{\"question\": \"q\", \"answer\": null}", "field 'answer' is missing"},
      {"strange name", "{\"question\": \"q\", \"a\\nb\": 1}", "the row has a?b, question"},
  };
  for (const auto& c : cases) {
    EXPECT_THAT(ConfigError(ok + "\n" + c.line + "\n"), StartsWith("d.jsonl:2: ")) << c.name;
    EXPECT_THAT(ConfigError(ok + "\n" + c.line + "\n"), HasSubstr(c.error)) << c.name;
  }
}

TEST_F(JsonlDatasetTest, TakesBracketsInStringsForText) {
  EXPECT_EQ(
      OnlyRow("{\"question\": \"" + std::string(100, '[') + "\\\"{\", \"answer\": \"a\"}").prompt,
      std::string(100, '[') + "\"{");
}

TEST_F(JsonlDatasetTest, TakesThirtyTwoLevels) {
  EXPECT_TRUE(Load("{\"question\": \"q\", \"answer\": \"a\", \"x\": " + std::string(31, '[') +
                   std::string(31, ']') + "}")
                  .ok());
}

TEST_F(JsonlDatasetTest, BoundsTheSizeOfALine) {
  const std::string empty = "{\"question\": \"\", \"answer\": \"a\"}";
  const auto line = [&](size_t bytes) {
    return "{\"question\": \"" + std::string(bytes - empty.size(), 'x') + "\", \"answer\": \"a\"}";
  };
  EXPECT_TRUE(Load(line(4 << 20)).ok());
  EXPECT_EQ(ConfigError(line((4 << 20) + 1)),
            "d.jsonl:1: line has 4194305 bytes, more than 4194304; split or shorten the row");
}

TEST_F(JsonlDatasetTest, BoundsTheSizeOfTheFile) {
  options_.max_file_bytes = 40;
  EXPECT_EQ(Load(std::string(41, ' ')).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(JsonlDatasetTest, RefusesAFileWithoutRows) {
  EXPECT_EQ(ConfigError(""), "d.jsonl: no rows; write one JSON object a line");
  EXPECT_EQ(ConfigError("\n \n"), "d.jsonl: no rows; write one JSON object a line");
}

TEST_F(JsonlDatasetTest, NamesAMissingFile) {
  options_.path = folder_ + "/absent.jsonl";
  const auto dataset = JsonlDataset::Load(options_, DataRoots::Unlimited());
  EXPECT_EQ(dataset.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(dataset.status().message()), HasSubstr("absent.jsonl"));
}

TEST_F(JsonlDatasetTest, RefusesAFolder) {
  options_.path = folder_;
  EXPECT_EQ(JsonlDataset::Load(options_, DataRoots::Unlimited()).status().code(),
            absl::StatusCode::kInvalidArgument);
}

// Rows with prompts "0", "1", ..., each padded to `bytes`, with a blank line after every fifth.
std::string NumberedRows(int rows, size_t bytes) {
  std::string contents;
  for (int i = 0; i < rows; ++i) {
    const std::string number = StrCat(i);
    contents += StrCat("{\"question\": \"", number, "\", \"answer\": \"a\", \"x\": \"",
                       std::string(bytes, 'x'), "\"}\n", i % 5 == 4 ? " \n" : "");
  }
  return contents;
}

TEST_F(JsonlDatasetTest, FindsEveryRowOfManyBlocks) {
  for (const size_t bytes : {size_t{0}, size_t{300}, size_t{5000}}) {
    const auto dataset = Load(NumberedRows(400, bytes));
    ASSERT_TRUE(dataset.ok()) << dataset.status();
    ASSERT_EQ((*dataset)->size(), 400);
    for (const int i : {0, 399, 7, 200, 199, 4, 5, 100}) {
      EXPECT_EQ((*dataset)->Get(i)->prompt, StrCat(i)) << bytes;
      EXPECT_EQ((*dataset)->Where(i), StrCat(options_.path, ":", i + i / 5 + 1)) << bytes;
    }
  }
}

TEST_F(JsonlDatasetTest, HoldsFarLessThanTheFile) {
  const auto few = Load(NumberedRows(10, 0));
  EXPECT_LE((*few)->held_bytes(), 1000u);
  const std::string contents = NumberedRows(2000, 4000);
  const auto many = Load(contents);
  EXPECT_LE((*many)->held_bytes(), 1000u + contents.size() / 100);
  const std::string small = NumberedRows(100000 / kHistoryDivisor, 0);
  const auto small_rows = Load(small);
  EXPECT_LE((*small_rows)->held_bytes(), 1000u + small.size() / 100) << "nor by number of rows";
}

TEST_F(JsonlDatasetTest, NamesAFileThatHasChanged) {
  const std::string contents = NumberedRows(400, 300);
  const auto dataset = Load(contents);
  const auto rewrite = [&](const std::string& text) {
    std::ofstream(options_.path, std::ios::binary) << text;
  };
  std::string changed = contents;
  changed.replace(changed.find("\"200\""), 5, "\"201\"");
  const struct {
    const char* name;
    std::string text;
  } cases[] = {{"as long", changed}, {"cut", contents.substr(0, 1000)}, {"empty", ""}};
  for (const auto& c : cases) {
    rewrite(c.text);
    const absl::Status status = (*dataset)->Get(200).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << c.name;
    EXPECT_THAT(Message(status), HasSubstr(options_.path + ": has changed")) << c.name;
    EXPECT_EQ((*dataset)->Where(200), options_.path) << c.name;
  }
  rewrite(contents + "{\"question\": \"new\", \"answer\": \"a\"}\n");
  EXPECT_EQ((*dataset)->Get(399)->prompt, "399") << "what is appended does not matter";
  EXPECT_EQ((*dataset)->size(), 400);
}

TEST_F(JsonlDatasetTest, AFileThatIsReplacedIsStillRead) {
  const auto dataset = Load(NumberedRows(400, 300));
  std::filesystem::remove(options_.path);
  std::ofstream(options_.path) << "another\n";
  EXPECT_EQ((*dataset)->Get(200)->prompt, "200");
}

// Truncating the file before a long line shows that reading earlier rows does not need it.
TEST_F(JsonlDatasetTest, ALongLineIsReadForNoOtherRow) {
  const std::string rows = NumberedRows(5, 300);
  const std::string lines[] = {std::string(1 << 20, ' ') + "\n", NumberedRows(1, 1 << 20)};
  for (const std::string& line : lines) {
    const auto dataset = Load(rows + line + rows);
    ASSERT_TRUE(dataset.ok()) << dataset.status();
    EXPECT_EQ((*dataset)->Get((*dataset)->size() - 1)->prompt, "4");
    EXPECT_EQ((*dataset)->Get((*dataset)->size() - 5)->prompt, "0");
    std::filesystem::resize_file(options_.path, rows.size());
    for (int i = 0; i < 5; ++i) {
      const auto row = (*dataset)->Get(i);
      ASSERT_TRUE(row.ok()) << row.status();
      EXPECT_EQ(row->prompt, StrCat(i));
    }
  }
}

TEST_F(JsonlDatasetTest, ALongLineIsNeverHeld) {
  options_.max_line_bytes = 1000;
  const std::string ok = "{\"question\": \"q\", \"answer\": \"a\"}\n";
  EXPECT_EQ(ConfigError(ok + std::string(1 << 20, 'x') + "\n" + ok),
            "d.jsonl:2: line has 1048576 bytes, more than 1000; split or shorten the row");
  const auto blank = Load(ok + std::string(1 << 20, ' ') + "\n" + ok);
  ASSERT_TRUE(blank.ok()) << blank.status();
  EXPECT_EQ((*blank)->Where(1), options_.path + ":3");
}

TEST_F(JsonlDatasetTest, LoadsGsm8k) {
  options_.path = std::string(FRESHET_SOURCE_DIR) + "/../shared/data/gsm8k/test.jsonl";
  if (!std::filesystem::exists(options_.path)) {
    GTEST_SKIP() << "the reference data set gsm8k is not on this machine";
  }
  const auto dataset = JsonlDataset::Load(options_, DataRoots::Unlimited());
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  ASSERT_EQ((*dataset)->size(), 1319);
  EXPECT_THAT((*dataset)->Get(0)->prompt, StartsWith("Janet\xE2\x80\x99s ducks lay 16 eggs"));
  EXPECT_THAT((*dataset)->Get(1318)->attributes.at("answer"), HasSubstr("\n#### "));
}

}  // namespace
}  // namespace freshet
