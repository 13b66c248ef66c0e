// `freshet ledger verify` on redos with different weights.
#include <functional>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runlog/ledger_verifier.h"
#include "tests/runlog/ledger_builder.h"

namespace freshet {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Json = LedgerBuilder::Json;

TEST(LedgerRedo, PassesARedoThatGivesOtherWeightsAndOrphansNothing) {
  LedgerBuilder builder;
  for (int64_t step = 1; step <= 4; ++step) {
    builder.Step();
    if (step == 2) builder.Checkpoint();
  }
  builder.Diverge(2);
  builder.Checkpoint();
  builder.Step();
  // A sample that was started at the replaced version 4.
  (*builder.Rows("trained").back())["spans"] = {
      {{"lineage", 0}, {"version", 4}, {"begin", 0}, {"end", 2}},
      {{"lineage", 1}, {"version", 4}, {"begin", 2}, {"end", 4}}};
  const VerifyReport report = Verify(builder);
  EXPECT_THAT(report.violations, IsEmpty());
  EXPECT_EQ(report.counts.steps, 5);
  EXPECT_EQ(report.counts.trained_samples, 30);
  EXPECT_EQ(report.counts.orphaned_samples, 0);
  EXPECT_EQ(report.counts.redo_rows, 12);
  EXPECT_EQ(report.counts.divergences, 1);
  EXPECT_EQ(report.counts.lineage, 1);
  EXPECT_THAT(FormatVerifyReport(report), HasSubstr("redos that differ   1, "));
}

TEST(LedgerRedo, PassesSeveralRedosThatDifferAndOneThatDied) {
  LedgerBuilder builder;
  for (int64_t step = 1; step <= 4; ++step) builder.Step();
  builder.Diverge(1, 2);   // dies after step 3
  builder.RedoInEpoch(1);  // reproduces the current weights
  builder.Step();
  builder.Diverge(3, 1);
  builder.Diverge(2);
  builder.Step();
  const VerifyReport report = Verify(builder);
  EXPECT_THAT(report.violations, IsEmpty());
  EXPECT_EQ(report.counts.divergences, 3);
  EXPECT_EQ(report.counts.trained_samples, 36);
}

TEST(LedgerRedo, PassesADurableRowOfWhatTheNewLineageComesFrom) {
  LedgerBuilder builder;
  builder.Step();
  builder.Checkpoint();
  const Json durable = builder.rows.back();
  builder.rows.pop_back();
  builder.Step();
  builder.Diverge(1);
  builder.rows.push_back(durable);
  builder.rows.back()["seq"] = 1000;
  EXPECT_THAT(Verify(builder).violations, IsEmpty());
}

Json& Trained(LedgerBuilder& builder, size_t index) { return *builder.Rows("trained").at(index); }

void EraseRow(LedgerBuilder& builder, const Json* row) {
  builder.rows.erase(builder.rows.begin() + (row - builder.rows.data()));
}

// One fault each, applied to a valid run, with the expected message.
struct Mutation {
  const char* name;
  std::function<void(LedgerBuilder&)> apply;
  const char* message;
};
void PrintTo(const Mutation& mutation, std::ostream* out) { *out << mutation.name; }

// Steps 1..4, redone from 2 with different weights, and step 5.
LedgerBuilder Diverged() {
  LedgerBuilder builder;
  for (int64_t step = 1; step <= 4; ++step) {
    builder.Step();
    if (step % 2 == 0) builder.Checkpoint();
  }
  builder.Diverge(2);
  builder.Step();
  builder.Checkpoint();
  return builder;
}

const std::vector<Mutation>& DivergenceMutations() {
  static const auto* const kMutations = new std::vector<Mutation>{
      {"NoRedo", [](LedgerBuilder& b) { Trained(b, 24)["redo"] = false; },
       "row of lineage 1 while lineage 0 is the current one"},
      {"LeapsALineage",
       [](LedgerBuilder& b) {
         for (int i = 24; i < 42; ++i) Trained(b, i)["lineage"] = 2;
       },
       "row of lineage 2 while lineage 0 is the current one"},
      {"GoesBackToTheOldLineage", [](LedgerBuilder& b) { Trained(b, 41)["lineage"] = 0; },
       "row of lineage 0 while lineage 1 is the current one"},
      {"LacksARedoneSample", [](LedgerBuilder& b) { EraseRow(b, &Trained(b, 25)); },
       "step 4 of lineage 1 is redone after 5 of 6 samples of step 3"},
      {"LacksTheRestOfTheRedo",
       [](LedgerBuilder& b) {
         for (int i = 0; i < 6; ++i) EraseRow(b, &Trained(b, 30));
       },
       "step 5 is trained while lineage 1 has redone no more than step 3 of 4"},
      {"LacksAStepOfTheRedo",
       [](LedgerBuilder& b) {
         b.Diverge(2);
         for (int i = 0; i < 6; ++i) EraseRow(b, &Trained(b, 48));
       },
       "step 5 of lineage 2 is redone after 6 of 6 samples of step 3"},
      {"AnotherTrainerSkipsTheRedo",
       [](LedgerBuilder& b) {
         b.Diverge(2, 1);
         b.RedoInEpoch(4);
       },
       "epoch 4 redoes from step 5, but lineage 2 needs it from step 3"},
      {"TwiceInAnEpoch",
       [](LedgerBuilder& b) {
         for (int i = 30; i < 42; ++i) Trained(b, i)["lineage"] = 2;
       },
       "lineage 2 begins in epoch 2, in which lineage 1 began"},
      {"RedoesWhatWasNeverTrained", [](LedgerBuilder& b) { Trained(b, 24)["uid"] = "j/99/0/0"; },
       "is redone in step 3, which never trained on it"},
      {"ReplacedVersionIsDurableLater",
       [](LedgerBuilder& b) {
         Json row = *b.Rows("durable")[1];
         row["seq"] = 1000;
         b.rows.push_back(row);
       },
       "durable row of superseded lineage 0"},
      {"DurableBeforeTheRedoIsDone",
       [](LedgerBuilder& b) {
         b.Diverge(2, 1);
         b.Checkpoint();
       },
       "version 5 is durable while lineage 2 has redone no more than step 3 of 5"},
      {"SpanOfAVersionThatNeverWas",
       [](LedgerBuilder& b) { Trained(b, 41)["spans"][0]["lineage"] = 2; }, "orphaned version"},
  };
  return *kMutations;
}

class LedgerRedoMutation : public ::testing::TestWithParam<Mutation> {};

TEST_P(LedgerRedoMutation, IsFound) {
  LedgerBuilder builder = Diverged();
  ASSERT_THAT(Verify(builder).violations, IsEmpty());
  GetParam().apply(builder);
  EXPECT_THAT(Verify(builder).violations, Contains(HasSubstr(GetParam().message)));
}

INSTANTIATE_TEST_SUITE_P(Redos, LedgerRedoMutation, ::testing::ValuesIn(DivergenceMutations()),
                         [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace freshet
