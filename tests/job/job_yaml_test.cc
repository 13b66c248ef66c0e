#include "job/job_yaml.h"

#include <limits>

#include "gmock/gmock.h"
#include "google/protobuf/util/message_differencer.h"
#include "gtest/gtest.h"
#include "job/scalar_value.h"
#include "tests/job/job_text.h"

namespace freshet {
namespace {

using google::protobuf::util::MessageDifferencer;

void ExpectRoundTrip(const JobSpec& spec) {
  const std::string yaml = WriteJobYaml(spec);
  const JobResult again = ParseJob(yaml, "job.yaml");
  EXPECT_EQ(FormatConfigErrors(again.errors), "") << yaml;
  EXPECT_TRUE(MessageDifferencer::Equals(spec, again.spec)) << yaml;
  EXPECT_EQ(WriteJobYaml(again.spec), yaml);
}

TEST(JobYaml, ResolvedJobRoundTrips) {
  ExpectRoundTrip(ParseJob(MinimalJob(), "j").spec);
  ExpectRoundTrip(
      ParseJob(MinimalJob() +
                   "eval: {rows: 5}\nloss: {preset: dapo, clip: {}, kl: {kind: k3, coef: "
                   "0.001}}\nwarmup: {sft: {steps: 1, learning_rate: 0.5}}\n",
               "j")
          .spec);
}

TEST(JobYaml, AbsentLossKeysStayAbsent) {
  const JobSpec spec = ParseJob(MinimalJob() + "loss: {clip: {high: 0.3}}\n", "j").spec;
  const JobSpec again = ParseJob(WriteJobYaml(spec), "j").spec;
  EXPECT_FALSE(again.loss().has_preset());
  EXPECT_FALSE(again.loss().clip().has_low());
  EXPECT_EQ(again.loss().clip().high(), 0.3);
}

TEST(JobYaml, DoublesRoundTripExactly) {
  JobSpec spec = ParseJob(MinimalJob(), "j").spec;
  for (const double value : {0.1, 1.0 / 3, 3e-4, 1e-300, std::numeric_limits<double>::denorm_min(),
                             0.1 + 0.2, 5e-9, 1.0, 10.0}) {
    spec.mutable_optimizer()->set_learning_rate(value);
    ExpectRoundTrip(spec);
  }
  for (const double value : {-0.0, 1e6, 123456.789, -1e-17}) {
    (*spec.mutable_reward()->mutable_components())["exact"].set_weight(value);
    ExpectRoundTrip(spec);
  }
}

TEST(JobYaml, OddTextRoundTrips) {
  JobSpec spec =
      ParseJob(MinimalJobWith(4, "dataset: {type: template, prompt: p, answer: a, rows: [{a: b}]}"),
               "j")
          .spec;
  for (const std::string& text :
       {std::string(" "), std::string("null"), std::string("~"), std::string("yes"),
        std::string("1.5"), std::string("a: b # c"), std::string("\"'\\"), std::string("\n\t\r\n"),
        std::string("\x01\x1F\x7F"), std::string("a\0b", 3), std::string("\xC3\xA9\xE2\x82\xAC"),
        std::string("{x: [1]}"), std::string("- a"), std::string("&a *b !c %d @e `f"),
        std::string("---\n..."), std::string("\xC2\x85\xE2\x80\xA8\xEF\xBB\xBF")}) {
    (*spec.mutable_dataset()->mutable_rows(0)->mutable_values())["a"] = text;
    (*spec.mutable_dataset()->mutable_rows(0)->mutable_values())[text] = "key";
    ExpectRoundTrip(spec);
    spec.mutable_dataset()->mutable_rows(0)->mutable_values()->erase(text);
  }
}

TEST(JobYaml, WritesBlocksListsAndMaps) {
  JobSpec spec;
  spec.set_name("job");
  spec.mutable_warmup();
  auto& rows = *spec.mutable_dataset()->mutable_rows();
  (*rows.Add()->mutable_values())["b"] = "2";
  (*rows.Mutable(0)->mutable_values())["a"] = "x";
  rows.Add();
  spec.mutable_rollout()->add_stop_token_ids(7);
  (*spec.mutable_reward()->mutable_components())["c"].set_weight(2);
  EXPECT_EQ(WriteJobYaml(spec),
            "name: job\n"
            "dataset:\n"
            "  rows:\n"
            "    - a: x\n"
            "      b: \"2\"\n"
            "    - {}\n"
            "rollout:\n"
            "  stop_token_ids:\n"
            "    - 7\n"
            "reward:\n"
            "  components:\n"
            "    c:\n"
            "      weight: 2.0\n"
            "warmup: {}\n");
}

TEST(FormatDouble, IsANumberForEveryYamlReader) {
  EXPECT_EQ(FormatDouble(1), "1.0");
  EXPECT_EQ(FormatDouble(3e-4), "3.0e-04");
  EXPECT_EQ(FormatDouble(0.25), "0.25");
  EXPECT_EQ(FormatDouble(1e22), "1.0e+22");
}

TEST(QuoteText, QuotesWhatIsNotAHarmlessWord) {
  EXPECT_EQ(QuoteText("exact_match"), "exact_match");
  EXPECT_EQ(QuoteText("Off"), "\"Off\"");
  EXPECT_EQ(QuoteText(""), "\"\"");
  EXPECT_EQ(QuoteText("7"), "\"7\"");
  EXPECT_EQ(QuoteText("a\"b"), "\"a\\\"b\"");
}

}  // namespace
}  // namespace freshet
