#include "runlog/ledger_verifier.h"

#include <functional>
#include <string>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/runlog/ledger_builder.h"

namespace freshet {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using Json = LedgerBuilder::Json;

TEST(LedgerVerifier, PassesAndCountsAForkedRun) {
  const VerifyReport report = Verify(LedgerBuilder::Forked());
  EXPECT_THAT(report.violations, IsEmpty());
  EXPECT_TRUE(report.ok);
  EXPECT_EQ(report.counts.steps, 7);
  EXPECT_EQ(report.counts.trained_samples, 42);
  EXPECT_EQ(report.counts.trained_tokens, 168);
  EXPECT_EQ(report.counts.orphaned_samples, 6);
  EXPECT_EQ(report.counts.dropped.at("orphaned"), 1);
  EXPECT_EQ(report.counts.filtered, 1);
  EXPECT_EQ(report.counts.max_staleness, 2);
  EXPECT_EQ(report.counts.resumes, 1);
  EXPECT_EQ(report.counts.durable_versions, 3);
  EXPECT_EQ(report.counts.lineage, 1);
  EXPECT_EQ(report.checkpoints, 3);
  EXPECT_EQ(report.checkpoint_files, 3);
  const std::string text = FormatVerifyReport(report);
  EXPECT_THAT(text, HasSubstr("dropped samples     1 (orphaned 1)"));
  EXPECT_THAT(text, HasSubstr("max staleness       2 (bound 2, policy wait)"));
  EXPECT_THAT(text, HasSubstr("ok: every promise holds"));
}

// Seven steps of a job with a success pool. The last sample is a copy of the first one, which is
// older than the bound 2.
LedgerBuilder Replayed() {
  LedgerBuilder builder;
  builder.rows[0]["replay_max_age"] = 6;
  builder.files["job.yaml"] += "replay: {max_age: 6}\n";
  for (int64_t step = 1; step <= 7; ++step) builder.Step();
  Json& copy = *builder.Rows("trained").back();
  const Json& success = *builder.Rows("trained").front();
  copy["sample"] = 3;
  copy["uid"] = "j/20/0/3";
  copy["replay_of"] = success["uid"];
  for (const char* key : {"spans", "min_version", "max_version"}) copy[key] = success[key];
  return builder;
}

TEST(LedgerVerifier, CountsReplayedSamplesApart) {
  LedgerBuilder builder = Replayed();
  Json replaced = builder.Sample("dropped", 20, 1);
  replaced["reason"] = "replaced";
  builder.Add(replaced);
  const VerifyReport report = Verify(builder);
  EXPECT_THAT(report.violations, IsEmpty());
  EXPECT_EQ(report.counts.trained_samples, 42);
  EXPECT_EQ(report.counts.replayed_samples, 1);
  EXPECT_EQ(report.counts.max_replay_age, 6);
  EXPECT_EQ(report.counts.max_staleness, 2);
  EXPECT_EQ(report.counts.replays_of_unknown, 0);
  const std::string text = FormatVerifyReport(report);
  EXPECT_THAT(text, HasSubstr("replayed samples    1, at most 6 versions old (bound 6)"));
  EXPECT_THAT(text, HasSubstr("max staleness       2 (bound 2, policy wait)"));
}

TEST(LedgerVerifier, FindsFaultsOfReplayedSamples) {
  struct Fault {
    std::function<void(LedgerBuilder&, Json& copy)> spoil;
    const char* violation;
  };
  const Fault faults[] = {
      {[](LedgerBuilder& b, Json&) {
         b.rows[0]["replay_max_age"] = 5;
         b.files["job.yaml"] = "name: j\n";
       },
       "staleness above the bound 5"},
      {[](LedgerBuilder& b, Json&) {
         b.rows[0].erase("replay_max_age");
         b.files["job.yaml"] = "name: j\n";
       },
       "but the job replays nothing"},
      {[](LedgerBuilder&, Json& copy) { copy["sample"] = 1; }, "is outside a group of 2"},
      {[](LedgerBuilder&, Json& copy) { copy.erase("replay_of"); }, "is outside a group of 2"},
      {[](LedgerBuilder&, Json& copy) { copy["sample"] = 2; }, "is trained twice in step 7"},
      {[](LedgerBuilder&, Json& copy) {
         copy["replay_of"] = "j/1/0/1";
         copy["spans"][0]["end"] = 5;
       },
       "the spans of a copy of j/1/0/1 differ from those of its own row"},
      {[](LedgerBuilder&, Json& copy) { copy["uid"] = copy["replay_of"]; },
       "is trained in step 7 after it was trained in step 1"},
      {[](LedgerBuilder& b, Json&) { b.files["job.yaml"] = "name: j\nreplay: {max_age: 7}\n"; },
       "job.yaml: replay.max_age is 7, but the ledger was opened with 6"},
  };
  for (const Fault& fault : faults) {
    LedgerBuilder builder = Replayed();
    fault.spoil(builder, *builder.Rows("trained").back());
    EXPECT_THAT(Verify(builder).violations, Contains(HasSubstr(fault.violation)));
  }
}

TEST(LedgerVerifier, ASuccessWithoutARowIsNoted) {
  LedgerBuilder builder = Replayed();
  (*builder.Rows("trained").back())["replay_of"] = "j/99/0/1";
  const VerifyReport report = Verify(builder);
  EXPECT_THAT(report.violations, IsEmpty());
  EXPECT_THAT(report.notes, Contains(HasSubstr("1 replayed samples are copies")));
}

// Two steps of a job with adaptive rollouts, whose last group has one sample.
LedgerBuilder Adapted() {
  LedgerBuilder builder;
  builder.rows[0]["min_G"] = 1;
  builder.files["job.yaml"] += "adaptive_rollouts: {min_group_size: 1}\n";
  builder.Step();
  builder.Step();
  builder.rows.pop_back();
  (*builder.Rows("trained").back())["samples"] = 1;
  return builder;
}

TEST(LedgerVerifier, AGroupHasAsManySamplesAsItsRowsSay) {
  LedgerBuilder builder = Adapted();
  VerifyReport report = Verify(builder);
  EXPECT_THAT(report.violations, IsEmpty());
  EXPECT_EQ(report.counts.trained_samples, 11);
  EXPECT_THAT(FormatVerifyReport(report), HasSubstr("2 of 3 groups x 1 to 2 samples"));
  builder.Diverge(0);
  report = Verify(builder);
  EXPECT_THAT(report.violations, IsEmpty()) << "the redo is complete";
  EXPECT_EQ(report.counts.divergences, 1);
}

TEST(LedgerVerifier, FindsFaultsOfAdaptedGroups) {
  struct Fault {
    std::function<void(LedgerBuilder&, Json& last)> spoil;
    const char* violation;
  };
  const Fault faults[] = {
      {[](LedgerBuilder& b, Json&) { b.rows[0].erase("min_G"); },
       "is of a group of 1 samples, but all have 2"},
      {[](LedgerBuilder& b, Json&) { b.rows[0]["min_G"] = 2; },
       "is of a group of 1 samples; it must have 2 to 2"},
      {[](LedgerBuilder& b, Json&) { b.rows[0]["min_G"] = 3; }, "min_G 3 is above G 2"},
      {[](LedgerBuilder&, Json& last) { last.erase("samples"); },
       "step 2 has 1 samples of prompt 5; it must have 2"},
      {[](LedgerBuilder&, Json& last) { last["sample"] = 1; }, "is outside a group of 1"},
      {[](LedgerBuilder& b, Json&) { (*b.Rows("trained").front())["samples"] = 1; },
       "is of a group of 2 samples, another one of 1"},
      {[](LedgerBuilder& b, Json&) { b.rows[0]["min_G"] = 0; },
       "adaptive_rollouts.min_group_size is 1, but the ledger was opened with 0"},
  };
  for (const Fault& fault : faults) {
    LedgerBuilder builder = Adapted();
    fault.spoil(builder, *builder.Rows("trained").back());
    EXPECT_THAT(Verify(builder).violations, Contains(HasSubstr(fault.violation)));
  }
}

TEST(LedgerVerifier, PassesForksOfForks) {
  LedgerBuilder builder;
  for (int64_t step = 1; step <= 4; ++step) builder.Step();
  builder.Checkpoint();
  builder.Step();
  builder.Fork(4);
  builder.Step();
  builder.Step();
  builder.Checkpoint();
  builder.Fork(4);  // resumes again from the checkpoint of lineage 0
  builder.Step();
  builder.Fork(4);
  builder.Step();
  const VerifyReport report = Verify(builder);
  EXPECT_THAT(report.violations, IsEmpty());
  EXPECT_EQ(report.counts.steps, 5);
  EXPECT_EQ(report.counts.lineage, 3);
}

TEST(LedgerVerifier, PassesAResumeBeforeTheFirstCheckpoint) {
  LedgerBuilder builder;
  builder.Step();
  builder.Fork(0);
  builder.Step();
  EXPECT_THAT(Verify(builder).violations, IsEmpty());
  LedgerBuilder before_any_step;
  before_any_step.Fork(0);
  before_any_step.Step();
  EXPECT_THAT(Verify(before_any_step).violations, IsEmpty());
}

TEST(LedgerVerifier, PassesARedo) {
  LedgerBuilder builder;
  builder.Step();
  builder.Step();
  builder.Checkpoint();
  builder.Step();
  builder.Redo(2);
  builder.Step();
  builder.Checkpoint();
  const VerifyReport report = Verify(builder);
  EXPECT_THAT(report.violations, IsEmpty());
  EXPECT_EQ(report.counts.steps, 4);
  EXPECT_EQ(report.counts.trained_samples, 24);
  EXPECT_EQ(report.counts.redo_rows, 6);
}

TEST(LedgerVerifier, PassesACheckpointThatLagsBehindTheLedger) {
  LedgerBuilder late;
  late.Step();
  late.Checkpoint();
  Json durable = late.rows.back();
  late.rows.pop_back();
  late.Step();
  durable["seq"] = 1000;
  late.rows.push_back(durable);
  EXPECT_THAT(Verify(late).violations, IsEmpty());
}

TEST(LedgerVerifier, PassesARunThatMasksOldTokens) {
  LedgerBuilder builder("mask");
  for (int64_t step = 1; step <= 4; ++step) builder.Step();
  Json& row = *builder.Rows("trained").back();
  row["spans"] = {{{"lineage", 0}, {"version", 0}, {"begin", 0}, {"end", 3}},
                  {{"lineage", 0}, {"version", 2}, {"begin", 3}, {"end", 4}}};
  row["masked_tokens"] = 3;
  row["loss_tokens"] = 1;
  row["min_version"] = 2;
  row["max_version"] = 2;
  EXPECT_THAT(Verify(builder).violations, IsEmpty());
  row["loss_tokens"] = 2;  // one loss token is of version 0
  row["masked_tokens"] = 2;
  EXPECT_THAT(Verify(builder).violations, Contains(HasSubstr("staleness above the bound 2")));
}

TEST(LedgerVerifier, CountsOldTokensWithoutLossForNothing) {
  LedgerBuilder builder;
  for (int64_t step = 1; step <= 4; ++step) builder.Step();
  Json& row = *builder.Rows("trained").back();
  row["spans"] = {{{"lineage", 0}, {"version", 0}, {"begin", 0}, {"end", 3}},  // an observation
                  {{"lineage", 0}, {"version", 3}, {"begin", 3}, {"end", 4}}};
  row["loss_tokens"] = 1;
  row["min_version"] = 3;
  EXPECT_THAT(Verify(builder).violations, IsEmpty());
}

TEST(LedgerVerifier, VersionsMayGoBackWhereASegmentBegins) {
  LedgerBuilder builder("mask");
  for (int64_t step = 1; step <= 4; ++step) builder.Step();
  Json& row = *builder.Rows("trained").back();
  row["spans"] = {{{"lineage", 0}, {"version", 3}, {"begin", 0}, {"end", 3}},
                  {{"lineage", 0}, {"version", 2}, {"begin", 3}, {"end", 4}}};
  row["loss_tokens"] = 2;
  row["min_version"] = 2;
  row["max_version"] = 3;
  EXPECT_THAT(Verify(builder).violations, Contains(HasSubstr("go back from version 3")));
  row["segments"] = {0, 3};
  EXPECT_THAT(Verify(builder).violations, IsEmpty());
}

TEST(LedgerVerifier, CountsDropsByTheLabelOfTheirReason) {
  LedgerBuilder builder;
  builder.Step();
  for (const char* reason : {"too_old: by 1", "too_old: by 2", "cancelled"}) {
    Json row = builder.Sample("dropped", 900, 0);
    row["reason"] = reason;
    builder.Add(row);
  }
  EXPECT_THAT(Verify(builder).counts.dropped,
              ElementsAre(std::pair("cancelled", 1), std::pair("too_old", 2)));
}

TEST(LedgerVerifier, IgnoresATornLastLineAndSaysSo) {
  LedgerBuilder builder;
  builder.Step();
  const VerifyReport whole = Verify(builder, "{\"seq\":99,\"ev");
  EXPECT_TRUE(whole.ok);
  EXPECT_THAT(whole.notes, ElementsAre("a torn last line of 13 bytes was ignored"));

  builder.Step();
  builder.rows.resize(builder.rows.size() - 2);
  const VerifyReport killed = Verify(builder, "{\"seq\":99,\"ev");
  EXPECT_TRUE(killed.ok);
  EXPECT_THAT(killed.notes, Contains(HasSubstr("the last step, 2, is incomplete")));
  EXPECT_FALSE(Verify(builder).ok);  // no torn line: not excused
}

TEST(LedgerVerifier, SaysNotFoundWithoutALedger) {
  const ScratchFolder folder;
  EXPECT_TRUE(absl::IsNotFound(VerifyRun(folder.path()).status()));
}

TEST(LedgerVerifier, NeedsNeitherJobNorCheckpoints) {
  LedgerBuilder builder = LedgerBuilder::Forked();
  builder.files.clear();
  const VerifyReport report = Verify(builder);
  EXPECT_TRUE(report.ok);
  EXPECT_EQ(report.checkpoints, 0);
}

TEST(LedgerVerifier, IgnoresUnfinishedCheckpointFolders) {
  LedgerBuilder builder = LedgerBuilder::Forked();
  builder.files["checkpoints/step-9.tmp/model.safetensors"] = "half";
  EXPECT_TRUE(Verify(builder).ok);
}

// Folder names on file systems without RENAME_EXCHANGE.
TEST(LedgerVerifier, ChecksCheckpointFoldersThatNameTheirWriter) {
  LedgerBuilder builder = LedgerBuilder::Forked();
  const int64_t before = Verify(builder).checkpoints;
  for (const char* name : {"manifest.json", "model.safetensors"}) {
    const std::string file = std::string("checkpoints/step-6/") + name;
    builder.files[std::string("checkpoints/step-6.epoch-2/") + name] = builder.files.at(file);
  }
  EXPECT_TRUE(Verify(builder).ok);
  EXPECT_EQ(Verify(builder).checkpoints, before + 1);
  builder.files["checkpoints/step-6.epoch-2/model.safetensors"] += "x";
  EXPECT_FALSE(Verify(builder).ok);
}

TEST(LedgerVerifier, ListsTheFirstViolationsAndCountsTheRest) {
  LedgerBuilder builder;
  for (int64_t step = 1; step <= 10; ++step) builder.Step();
  for (Json* row : builder.Rows("trained")) (*row)["step"] = 50;
  const VerifyReport report = Verify(builder);
  EXPECT_EQ(report.num_violations, 60);
  EXPECT_THAT(report.violations, SizeIs(Violations::kMaxListed));
  EXPECT_THAT(FormatVerifyReport(report), HasSubstr("and 40 more\nFAILED: 60 violations"));
}

}  // namespace
}  // namespace freshet
