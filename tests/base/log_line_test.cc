#include "base/log_line.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace freshet {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::Pair;

LogLine Line(std::string_view text) {
  return {.time = absl::FromUnixMillis(1'700'000'000'123),
          .severity = LogSeverity::kWarning,
          .role = "rollout",
          .worker = "rollout-1",
          .place = "file.cc:12",
          .job = "sums",
          .text = text};
}

TEST(ParseLogText, FindsKeysAndTheirValues) {
  EXPECT_THAT(ParseLogText("event=store_back step=12"),
              ElementsAre(Pair("event", "store_back"), Pair("step", "12")));
  // An unquoted value extends to the next key.
  EXPECT_THAT(ParseLogText("event=waiting reason=2 of 3 rows: x, y seconds=4"),
              ElementsAre(Pair("event", "waiting"), Pair("reason", "2 of 3 rows: x, y"),
                          Pair("seconds", "4")));
  // A quoted value ends at the next quote, even if it contains a key.
  EXPECT_THAT(ParseLogText("event=failed reason=\"it said \"a=1\" b=2\" url=http://h/?q=1"),
              ElementsAre(Pair("event", "failed"), Pair("reason", "it said \"a=1"),
                          Pair("b", "2\""), Pair("url", "http://h/?q=1")));
  EXPECT_THAT(ParseLogText("reason=\"k=v, w=x\" empty= last=\"\""),
              ElementsAre(Pair("reason", "k=v, w=x"), Pair("empty", ""), Pair("last", "")));
}

TEST(ParseLogText, AValueWithoutItsClosingQuoteIsTheRest) {
  EXPECT_THAT(ParseLogText("event=x error=\"cut short job=7 st"),
              ElementsAre(Pair("event", "x"), Pair("error", "cut short job=7 st")));
  EXPECT_THAT(ParseLogText("a=1 b=\""), ElementsAre(Pair("a", "1"), Pair("b", "")));
}

TEST(ParseLogText, WhatHasNoKeyIsTheMessage) {
  EXPECT_THAT(ParseLogText("it begins"), ElementsAre(Pair("message", "it begins")));
  EXPECT_THAT(ParseLogText("first job=a \"and\" reason=\"x\" then more"),
              ElementsAre(Pair("job", "a \"and\""), Pair("reason", "x"),
                          Pair("message", "first then more")));
}

TEST(ParseLogText, TakesAnyText) {
  EXPECT_THAT(ParseLogText(""), IsEmpty());
  EXPECT_THAT(ParseLogText("   "), IsEmpty());
  const std::vector<std::string> texts = {"=",
                                          "a=",
                                          "a=\"",
                                          "\"",
                                          "= =",
                                          "a=\"b",
                                          "A=b",
                                          std::string(1000, 'k') + "=v",
                                          {"\x00\xff\n=\"", 5}};
  for (const std::string& text : texts) {
    size_t value_bytes = 0;
    for (const auto& [key, value] : ParseLogText(text)) {
      EXPECT_NE(key, "") << text;
      value_bytes += value.size();
    }
    EXPECT_LE(value_bytes, text.size()) << text;
  }
}

TEST(FormatLogLine, AsText) {
  EXPECT_EQ(FormatLogLine(Line("event=store_back step=12"), LogFormat::kText),
            "time=2023-11-14T22:13:20.123Z level=warning role=rollout worker=rollout-1 "
            "at=file.cc:12 job=sums event=store_back step=12");
  EXPECT_EQ(FormatLogText(Line("event=store_back")), "at=file.cc:12 job=sums event=store_back");
  LogLine bare = Line("one\ntwo");
  bare.role = bare.worker = bare.job = "";
  EXPECT_EQ(FormatLogLine(bare, LogFormat::kText),
            "time=2023-11-14T22:13:20.123Z level=warning at=file.cc:12 one two");
}

TEST(FormatLogLine, AJobThatTheTextNamesCounts) {
  for (const char* text : {"event=x job=other", "job=other state=RUNNING"}) {
    EXPECT_EQ(FormatLogText(Line(text)), std::string("at=file.cc:12 ") + text);
    EXPECT_EQ(nlohmann::json::parse(FormatLogLine(Line(text), LogFormat::kJson))["job"], "other");
  }
  EXPECT_EQ(FormatLogText(Line("nojob=1")), "at=file.cc:12 job=sums nojob=1");
}

TEST(FormatLogLine, AJobWithinQuotesIsNotNamed) {
  const std::string text = "event=x error=\"quota exceeded for job=7\"";
  EXPECT_EQ(FormatLogText(Line(text)), "at=file.cc:12 job=sums " + text);
  EXPECT_EQ(nlohmann::json::parse(FormatLogLine(Line(text), LogFormat::kJson))["job"], "sums");
}

TEST(FormatLogLine, ControlCharactersAreBlanks) {
  EXPECT_EQ(FormatLogText(Line("a\r\x1b[31mb\tc\x7f\x1f\n")),
            "at=file.cc:12 job=sums a  [31mb c   ");
  EXPECT_EQ(FormatLogText(Line({"\0 ~\xc3\xa4", 5})), "at=file.cc:12 job=sums   ~\xc3\xa4");
}

TEST(LogQuoted, AValueEndsWhereItEnds) {
  EXPECT_EQ(LogQuoted(""), "\"\"");
  EXPECT_EQ(LogQuoted("\""), "\"'\"");
  const std::string text = "event=x error=" + LogQuoted("x\" job=other-1 step=3") + " step=4";
  EXPECT_THAT(
      ParseLogText(text),
      ElementsAre(Pair("event", "x"), Pair("error", "x' job=other-1 step=3"), Pair("step", "4")));
  EXPECT_EQ(nlohmann::json::parse(FormatLogLine(Line(text), LogFormat::kJson))["job"], "sums");
}

TEST(FormatLogLine, AsJson) {
  EXPECT_EQ(FormatLogLine(Line("event=failed reason=\"he said \"no\"\" step=3"), LogFormat::kJson),
            R"({"time":"2023-11-14T22:13:20.123Z","level":"warning","role":"rollout",)"
            R"("worker":"rollout-1","at":"file.cc:12","job":"sums","event":"failed",)"
            R"("reason":"he said \"no\"","step":"3"})");
}

TEST(FormatLogLine, JsonKeepsEveryFieldAndIsValidWhateverTheText) {
  const auto json =
      nlohmann::json::parse(FormatLogLine(Line("worker=w time=1 a=1 a=2 a=3"), LogFormat::kJson));
  EXPECT_EQ(json["worker"], "rollout-1");
  EXPECT_EQ(json["worker_"], "w");
  EXPECT_EQ(json["time_"], "1");
  EXPECT_EQ(json["a"], "1");
  EXPECT_EQ(json["a_"], "2");
  EXPECT_EQ(json["a__"], "3");
  for (const std::string text : {"a=\xff\xfe", "line\nbreak \t\x01", "a=\"\\", "\xe2\x82"}) {
    const std::string line = FormatLogLine(Line(text), LogFormat::kJson);
    EXPECT_TRUE(nlohmann::json::accept(line)) << line;
    EXPECT_EQ(line.find('\n'), std::string::npos);
  }
}

}  // namespace
}  // namespace freshet
