#include "runlog/samples_log.h"

#include <limits>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/runlog/scratch_folder.h"

namespace freshet {
namespace {

SampleRow Row(int64_t step) {
  SampleRow row;
  row.step = step;
  row.policy_version = step;
  row.uid = "job/3/0/1";
  row.prompt = "12+34=";
  row.completion = "0\"46\n";
  row.reward = 0.5;
  row.components = {{"exact", 1}, {"length", 0.25}};
  row.tokens = 4;
  row.spans = {{{0, 1}, 0, 2}, {{0, 2}, 2, 4}};
  row.finish = "stop";
  return row;
}

TEST(SampleRow, ComesBackFromItsLine) {
  const std::string line = ToJson(Row(2));
  const absl::StatusOr<SampleRow> row = ParseSampleRow(line);
  ASSERT_TRUE(row.ok());
  EXPECT_EQ(ToJson(*row), line);
  EXPECT_EQ(row->completion, "0\"46\n");
  EXPECT_EQ(row->spans, Row(2).spans);
  EXPECT_EQ(row->components, Row(2).components);
}

TEST(SampleRow, HasSegmentsIfThereAreSeveral) {
  SampleRow row = Row(2);
  row.segments = {0, 2};
  const std::string line = ToJson(row);
  EXPECT_THAT(line, ::testing::HasSubstr(R"("segments":[0,2])"));
  EXPECT_EQ(ParseSampleRow(line)->segments, row.segments);
  EXPECT_THAT(ToJson(Row(2)), ::testing::Not(::testing::HasSubstr("segments")));
}

TEST(SampleRow, StaysOneLineOfJsonWhateverTheBytes) {
  SampleRow row = Row(1);
  row.completion = "\xff\xfe\n\x01";
  row.reward = std::numeric_limits<double>::quiet_NaN();
  const std::string line = ToJson(row);
  EXPECT_EQ(line.find('\n'), std::string::npos);
  EXPECT_THAT(line, ::testing::HasSubstr("\"reward\":null"));
  EXPECT_TRUE(ParseSampleRow(line).ok());
}

TEST(ToShortJson, CutsLongTextsBetweenCharacters) {
  SampleRow row = Row(1);
  row.completion = "x";
  while (row.completion.size() < kMaxSampleText + 100) row.completion += "\xC3\xA4";
  const std::string line = ToShortJson(row);
  EXPECT_THAT(line, ::testing::HasSubstr("\"truncated\":true"));
  EXPECT_EQ(ParseSampleRow(line)->completion, row.completion.substr(0, kMaxSampleText - 1));
  EXPECT_THAT(ToShortJson(Row(1)), ::testing::HasSubstr("\"truncated\":false"));
}

TEST(ParseSampleRow, RefusesWrongTypes) {
  EXPECT_TRUE(absl::IsInvalidArgument(ParseSampleRow("7").status()));
  EXPECT_TRUE(absl::IsInvalidArgument(ParseSampleRow(R"({"prompt":7})").status()));
  EXPECT_TRUE(absl::IsInvalidArgument(ParseSampleRow(R"({"spans":[{"begin":1}]})").status()));
  EXPECT_TRUE(absl::IsInvalidArgument(ParseSampleRow(R"({"segments":["a"]})").status()));
  EXPECT_TRUE(absl::IsInvalidArgument(ParseSampleRow(R"({"components":{"a":"b"}})").status()));
  const std::string deep = std::string(500'000, '[') + std::string(500'000, ']');
  const std::string line = R"({"a":)" + deep + R"(,"components":)" + deep + "}";
  EXPECT_TRUE(absl::IsInvalidArgument(ParseSampleRow(line).status()));
}

TEST(ReadSampleExcerpt, KeepsFirstAndLastWithoutOverlap) {
  const ScratchFolder folder;
  absl::StatusOr<SamplesLog> log = SamplesLog::Open(folder.File("samples.jsonl"));
  ASSERT_TRUE(log.ok());
  for (int64_t step = 1; step <= 5; ++step) ASSERT_TRUE(log->Append(Row(step)).ok());
  const absl::StatusOr<SampleExcerpt> excerpt =
      ReadSampleExcerpt(folder.File("samples.jsonl"), 2, 2);
  ASSERT_TRUE(excerpt.ok());
  ASSERT_EQ(excerpt->first.size(), 2U);
  ASSERT_EQ(excerpt->last.size(), 2U);
  EXPECT_EQ(excerpt->first[1].step, 2);
  EXPECT_EQ(excerpt->last[0].step, 4);
  EXPECT_EQ(excerpt->last[1].step, 5);

  const absl::StatusOr<SampleExcerpt> all = ReadSampleExcerpt(folder.File("samples.jsonl"), 4, 4);
  ASSERT_TRUE(all.ok());
  EXPECT_EQ(all->first.size(), 4U);
  EXPECT_EQ(all->last.size(), 1U);
}

TEST(SamplesLog, CutsATornLineWhenOpenedAgain) {
  const ScratchFolder folder;
  folder.Write("samples.jsonl", "{\"step\":1}\n{\"st");
  ASSERT_TRUE(SamplesLog::Open(folder.File("samples.jsonl")).ok());
  EXPECT_EQ(folder.Read("samples.jsonl"), "{\"step\":1}\n");
}

}  // namespace
}  // namespace freshet
