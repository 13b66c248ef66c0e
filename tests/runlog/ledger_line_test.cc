#include "runlog/ledger_line.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/runlog/ledger_builder.h"

namespace freshet {
namespace {

using ::testing::HasSubstr;

TEST(LedgerLine, ReadsASampleRow) {
  LedgerBuilder builder;
  builder.Step();
  builder.Step();
  const absl::StatusOr<LedgerLine> line = ParseLedgerLine(builder.rows[7].dump());
  ASSERT_TRUE(line.ok());
  EXPECT_EQ(line->event, LedgerLine::Event::kTrained);
  EXPECT_EQ(line->step, 2);
  EXPECT_EQ(line->uid, "j/3/0/0");
  ASSERT_EQ(line->spans.size(), 2U);
  EXPECT_EQ(line->spans[1].begin, 2);
  EXPECT_EQ(line->min_version, 0);
}

TEST(LedgerLine, NamesEachMissingKeyOfASampleRow) {
  LedgerBuilder builder;
  builder.Step();
  for (const char* key :
       {"seq", "event", "epoch", "lineage", "step", "train_version", "uid", "prompt", "attempt",
        "sample", "loss_tokens", "masked_tokens", "spans", "min_version", "max_version"}) {
    LedgerBuilder::Json row = builder.rows[1];
    row.erase(key);
    const absl::StatusOr<LedgerLine> line = ParseLedgerLine(row.dump());
    EXPECT_TRUE(absl::IsInvalidArgument(line.status())) << key;
    EXPECT_THAT(std::string(line.status().message()), HasSubstr(key));
  }
}

TEST(LedgerLine, RefusesWrongTypesAndRanges) {
  LedgerBuilder builder;
  builder.Step();
  const LedgerBuilder::Json good = builder.rows[1];
  struct Case {
    const char* key;
    LedgerBuilder::Json value;
  };
  for (const Case& c : std::vector<Case>{{"step", "1"},
                                         {"step", 1.5},
                                         {"step", -1},
                                         {"step", uint64_t{1} << 63U},
                                         {"loss_tokens", int64_t{1} << 40},
                                         {"uid", 7},
                                         {"redo", 1},
                                         {"spans", 1},
                                         {"spans", {1}},
                                         {"spans", {{{"begin", 0}}}},
                                         {"segments", 0},
                                         {"segments", {-1}},
                                         {"segments", {"0"}},
                                         {"event", "eaten"}}) {
    LedgerBuilder::Json row = good;
    row[c.key] = c.value;
    EXPECT_TRUE(absl::IsInvalidArgument(ParseLedgerLine(row.dump()).status()))
        << c.key << " " << c.value;
  }
  EXPECT_FALSE(ParseLedgerLine("").ok());
  EXPECT_FALSE(ParseLedgerLine("{\"event\":").ok());
  EXPECT_FALSE(ParseLedgerLine("[]").ok());
  EXPECT_FALSE(ParseLedgerLine(std::string(100000, '[')).ok());
}

}  // namespace
}  // namespace freshet
