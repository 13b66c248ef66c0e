#include "dataset/growing_dataset.h"

#include "base/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/runlog/scratch_folder.h"

namespace freshet {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::string Lines(const std::vector<std::string>& questions) {
  std::string lines;
  for (const std::string& question : questions) lines += StrCat("{\"q\": \"", question, "\"}\n");
  return lines;
}

class GrowingDatasetTest : public testing::Test {
 protected:
  GrowingDatasetTest() {
    scratch_.Write("first.jsonl", Lines({"a", "b"}));
    options_.path = scratch_.File("first.jsonl");
    options_.dataset.set_prompt("{q}");
  }

  std::unique_ptr<GrowingDataset> Open() {
    absl::StatusOr<std::shared_ptr<const Dataset>> first =
        JsonlDataset::Load(options_, DataRoots::Unlimited());
    EXPECT_TRUE(first.ok()) << first.status();
    auto rows = std::make_unique<GrowingDataset>(*first, options_, scratch_.File("more"),
                                                 DataRoots::Unlimited());
    rows->SetCheck([](const Dataset& more) {
      return more.Get(0)->prompt == "bad" ? absl::InvalidArgumentError("a bad row")
                                          : absl::OkStatus();
    });
    return rows;
  }

  // The questions of `count` prompts from `next_` on.
  std::vector<std::string> Next(const GrowingDataset& rows, int count) {
    std::vector<std::string> questions;
    for (int i = 0; i < count; ++i) {
      const int64_t row = rows.RowOf(1, next_, /*shuffle=*/false);
      EXPECT_EQ(rows.RowOf(1, next_, /*shuffle=*/false), row) << "asked again";
      questions.push_back(rows.Get(row)->prompt);
      ++next_;
    }
    return questions;
  }

  const ScratchFolder scratch_;
  JsonlDatasetOptions options_;
  int64_t next_ = 0;
};

TEST_F(GrowingDatasetTest, OffersNewRowsBeforeItRepeatsAny) {
  const auto rows = Open();
  EXPECT_THAT(Next(*rows, 5), ElementsAre("a", "b", "a", "b", "a")) << "the folder is not there";
  scratch_.Write("more/2.jsonl", Lines({"e"}));
  scratch_.Write("more/1.jsonl", Lines({"c", "d"}));
  scratch_.Write("more/.3.jsonl.tmp", "{");
  EXPECT_THAT(Next(*rows, 4), ElementsAre("c", "d", "e", "d"));
  EXPECT_EQ(rows->size(), 5);
  EXPECT_THAT(rows->Where(4), HasSubstr("more/2.jsonl:1"));
  EXPECT_EQ(rows->Get(5).status().code(), absl::StatusCode::kOutOfRange);
}

TEST_F(GrowingDatasetTest, SkipsFilesWithErrors) {
  scratch_.Write("more/1.jsonl", "{\"q\": ");
  scratch_.Write("more/2.jsonl", Lines({"bad"}));
  scratch_.Write("more/3.jsonl", Lines({"c"}));
  EXPECT_THAT(Next(*Open(), 4), ElementsAre("a", "b", "c", "a"));
}

TEST_F(GrowingDatasetTest, AfterARestartTheRowsOfEarlierPromptsAreNotNew) {
  scratch_.Write("more/1.jsonl", Lines({"c", "d"}));
  next_ = 3;
  EXPECT_THAT(Next(*Open(), 2), ElementsAre("d", "a"));
}

TEST_F(GrowingDatasetTest, WithoutACheckNothingIsAdded) {
  scratch_.Write("more/1.jsonl", Lines({"c"}));
  const auto rows = Open();
  rows->SetCheck(nullptr);
  EXPECT_THAT(Next(*rows, 3), ElementsAre("a", "b", "a"));
}

}  // namespace
}  // namespace freshet
