// Template rows and the held-out split.
#include "dataset/template_dataset.h"

#include <map>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace freshet {
namespace {

void AddRow(const std::map<std::string, std::string>& values, job::v1::Dataset& dataset) {
  dataset.add_rows()->mutable_values()->insert(values.begin(), values.end());
}

job::v1::Dataset Stories() {
  job::v1::Dataset dataset;
  dataset.set_prompt("a little {noun} named {name}.");
  AddRow({{"noun", "girl"}, {"name", "Lily"}}, dataset);
  AddRow({{"noun", "boy"}, {"name", "Tim"}}, dataset);
  return dataset;
}

TEST(TemplateDataset, FillsThePromptAndKeepsTheVariables) {
  const auto dataset = MakeTemplateDataset(Stories());
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  ASSERT_EQ((*dataset)->size(), 2);
  EXPECT_EQ((*dataset)->Get(1)->prompt, "a little boy named Tim.");
  EXPECT_EQ((*dataset)->Get(1)->attributes.at("name"), "Tim");
  EXPECT_EQ((*dataset)->Get(1)->attributes.count("answer"), 0u);
  EXPECT_EQ((*dataset)->Get(2).status().code(), absl::StatusCode::kOutOfRange);
}

TEST(TemplateDataset, TakesTheAnswerFromItsField) {
  job::v1::Dataset options = Stories();
  options.set_answer("name");
  const auto dataset = MakeTemplateDataset(options);
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  EXPECT_EQ((*dataset)->Get(0)->attributes.at("answer"), "Lily");
}

TEST(TemplateDataset, NamesRowsWithoutAField) {
  job::v1::Dataset options = Stories();
  AddRow({{"noun", "cat"}}, options);
  EXPECT_EQ(std::string(MakeTemplateDataset(options).status().message()),
            "dataset.rows[2]: field 'name' is missing; the row has noun");
}

TEST(TemplateDataset, RefusesNoRows) {
  EXPECT_EQ(MakeTemplateDataset({}).status().code(), absl::StatusCode::kInvalidArgument);
}

std::shared_ptr<const Dataset> Numbers(int count) {
  job::v1::Dataset options;
  options.set_prompt("{n}");
  for (int i = 0; i < count; ++i) AddRow({{"n", std::to_string(i)}}, options);
  return *MakeTemplateDataset(options);
}

TEST(SplitHeldOut, HoldsOutTheLastRows) {
  const auto split = SplitHeldOut(Numbers(5), 2);
  ASSERT_TRUE(split.ok()) << split.status();
  EXPECT_EQ(split->train->size(), 3);
  EXPECT_EQ(split->held_out->size(), 2);
  EXPECT_EQ(split->train->Get(2)->prompt, "2");
  EXPECT_EQ(split->held_out->Get(0)->prompt, "3");
  EXPECT_EQ(split->held_out->Get(1)->prompt, "4");
  EXPECT_EQ(split->held_out->Where(1), "dataset.rows[4]");
  EXPECT_EQ(split->train->Get(3).status().code(), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(split->held_out->Get(-1).status().code(), absl::StatusCode::kOutOfRange);
}

TEST(SplitHeldOut, LeavesARowOnEachSide) {
  EXPECT_TRUE(SplitHeldOut(Numbers(5), 4).ok());
  for (const int64_t rows : {-1, 0, 5, 6}) {
    EXPECT_EQ(SplitHeldOut(Numbers(5), rows).status().code(), absl::StatusCode::kInvalidArgument);
  }
}

}  // namespace
}  // namespace freshet
