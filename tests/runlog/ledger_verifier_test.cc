#include "runlog/ledger_verifier.h"

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "base/digest.h"
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

VerifyReport Verify(const LedgerBuilder& builder, const std::string& torn = "") {
  const ScratchFolder folder;
  builder.Write(folder, torn);
  absl::StatusOr<VerifyReport> report = VerifyRun(folder.path());
  EXPECT_TRUE(report.ok()) << report.status();
  return report.ok() ? *std::move(report) : VerifyReport{};
}

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

// One fault each, applied to the valid forked run, with the expected message.
struct Mutation {
  const char* name;
  std::function<void(LedgerBuilder&)> apply;
  const char* message;
};

void PrintTo(const Mutation& mutation, std::ostream* out) { *out << mutation.name; }

class LedgerMutation : public ::testing::TestWithParam<Mutation> {};

TEST_P(LedgerMutation, IsCaught) {
  LedgerBuilder builder = LedgerBuilder::Forked();
  GetParam().apply(builder);
  const VerifyReport report = Verify(builder);
  EXPECT_FALSE(report.ok);
  EXPECT_THAT(report.violations, Contains(HasSubstr(GetParam().message)));
}

// Trained rows: 0..23 are steps 1..4, 24..29 the orphaned step 5, 30..47 steps 5..7 of lineage 1.
// The first two of each step have two spans.
Json& Trained(LedgerBuilder& builder, size_t index) { return *builder.Rows("trained").at(index); }

void EraseRow(LedgerBuilder& builder, const Json* row) {
  builder.rows.erase(builder.rows.begin() + (row - builder.rows.data()));
}

std::string& Manifest(LedgerBuilder& builder, int step) {
  return builder.files.at("checkpoints/step-" + std::to_string(step) + "/manifest.json");
}

// Changes a manifest and updates the durable row to match.
void EditManifest(LedgerBuilder& builder, int step, const std::function<void(Json&)>& edit) {
  std::string& text = Manifest(builder, step);
  Json manifest = Json::parse(text);
  edit(manifest);
  const std::string before = Sha256Hex(text);
  text = manifest.dump();
  for (Json& row : builder.rows) {
    if (row.value("checkpoint_sha256", "") == before) row["checkpoint_sha256"] = Sha256Hex(text);
  }
}

const std::vector<Mutation>& RowMutations() {
  static const auto* const kMutations = new std::vector<Mutation>{
      {"NoOpen", [](LedgerBuilder& b) { b.rows.erase(b.rows.begin()); },
       "the first row is not `open`"},
      {"SecondOpen",
       [](LedgerBuilder& b) {
         b.Add({{"event", "open"},
                {"job", "j"},
                {"bound", 2},
                {"disposition", "wait"},
                {"B", 3},
                {"G", 2}});
       },
       "a second `open` row"},
      {"UnknownDisposition", [](LedgerBuilder& b) { b.rows[0]["disposition"] = "eat"; },
       "disposition \"eat\""},
      {"ZeroGroups", [](LedgerBuilder& b) { b.rows[0]["G"] = 0; }, "must be at least 1"},
      {"SeqRepeats", [](LedgerBuilder& b) { b.rows[5]["seq"] = b.rows[4]["seq"]; },
       "does not grow"},
      {"MalformedRow", [](LedgerBuilder& b) { Trained(b, 3).erase("uid"); }, "key \"uid\""},
      {"EpochGoesBack", [](LedgerBuilder& b) { Trained(b, 40)["epoch"] = 1; }, "is fenced"},
      {"MissingSample", [](LedgerBuilder& b) { EraseRow(b, &Trained(b, 47)); },
       "step 7 has 1 samples of prompt 20"},
      {"MissingGroup",
       [](LedgerBuilder& b) {
         EraseRow(b, &Trained(b, 47));
         EraseRow(b, &Trained(b, 46));
       },
       "step 7 has 2 groups; it must have 3"},
      {"ExtraGroup",
       [](LedgerBuilder& b) {
         Json row = Trained(b, 47);
         for (int sample = 0; sample < 2; ++sample) {
           row["prompt"] = 77;
           row["sample"] = sample;
           row["uid"] = "j/77/0/" + std::to_string(sample);
           row["seq"] = 1000 + sample;
           b.rows.push_back(row);
         }
       },
       "step 7 has 4 groups"},
      {"SampleOutsideGroup", [](LedgerBuilder& b) { Trained(b, 47)["sample"] = 2; },
       "outside a group of 2"},
      {"SampleTwice", [](LedgerBuilder& b) { Trained(b, 47)["sample"] = 0; },
       "sample 0 of prompt 20 is trained twice"},
      {"UidTwice", [](LedgerBuilder& b) { Trained(b, 47)["uid"] = Trained(b, 0)["uid"]; },
       "is trained in step 7 after it was trained in step 1"},
      {"PromptTwice",
       [](LedgerBuilder& b) {
         Trained(b, 46)["prompt"] = 0;
         Trained(b, 47)["prompt"] = 0;
       },
       "prompt 0 is trained in step 7 after it was trained in step 1"},
      {"TrainedAndDropped",
       [](LedgerBuilder& b) { b.Rows("filtered")[0]->at("uid") = Trained(b, 0)["uid"]; },
       "both trained and dropped"},
      {"NoReason", [](LedgerBuilder& b) { b.Rows("dropped")[0]->erase("reason"); },
       "has no reason"},
      {"WrongStep", [](LedgerBuilder& b) { Trained(b, 47)["step"] = 8; },
       "step 8 trains at version 6"},
      {"MissingStep",
       [](LedgerBuilder& b) {
         for (int i = 0; i < 6; ++i) EraseRow(b, &Trained(b, 36));
       },
       "steps 6..6 have no trained rows"},
      {"StepsOutOfOrder",
       [](LedgerBuilder& b) {
         Trained(b, 47)["train_version"] = 5;
         Trained(b, 47)["step"] = 6;
       },
       "step 6 is trained after step 7"},
  };
  return *kMutations;
}

const std::vector<Mutation>& SpanMutations() {
  static const auto* const kMutations = new std::vector<Mutation>{
      {"TooStale",
       [](LedgerBuilder& b) {
         Trained(b, 47)["spans"][0]["version"] = 3;
         Trained(b, 47)["spans"][0]["lineage"] = 0;
         Trained(b, 47)["min_version"] = 3;
         Trained(b, 47)["max_version"] = 3;
       },
       "on tokens of version 3: staleness above the bound 2"},
      {"TooStaleBehindAFalseMinimum",
       [](LedgerBuilder& b) {
         Trained(b, 42)["spans"][0] = {{"lineage", 0}, {"version", 3}, {"begin", 0}, {"end", 2}};
       },
       "on tokens of version 3: staleness above the bound 2"},
      {"TooStaleInAnOrphanedStep",
       [](LedgerBuilder& b) {
         Trained(b, 29)["spans"][0]["version"] = 1;
         Trained(b, 29)["min_version"] = 1;
         Trained(b, 29)["max_version"] = 1;
       },
       "on tokens of version 1: staleness above the bound 2"},
      {"FalseMinimum", [](LedgerBuilder& b) { Trained(b, 42)["min_version"] = 6; },
       "min_version 6"},
      {"FalseMaximum", [](LedgerBuilder& b) { Trained(b, 42)["max_version"] = 5; },
       "max_version 5"},
      {"TokensFromTheFuture",
       [](LedgerBuilder& b) {
         Trained(b, 47)["spans"][0]["version"] = 7;
         Trained(b, 47)["min_version"] = 7;
         Trained(b, 47)["max_version"] = 7;
       },
       "newer than the version 6"},
      {"OrphanedTokens", [](LedgerBuilder& b) { Trained(b, 36)["spans"][1]["lineage"] = 0; },
       "tokens of the orphaned version 5 of lineage 0"},
      {"TokensOfAnUnknownLineage",
       [](LedgerBuilder& b) { Trained(b, 47)["spans"][0]["lineage"] = 7; },
       "tokens of the orphaned version 6 of lineage 7"},
      {"SpansStartLate", [](LedgerBuilder& b) { Trained(b, 47)["spans"][0]["begin"] = 1; },
       "not contiguous"},
      {"SpansHaveAGap", [](LedgerBuilder& b) { Trained(b, 42)["spans"][1]["begin"] = 3; },
       "not contiguous"},
      {"SpanIsEmpty", [](LedgerBuilder& b) { Trained(b, 47)["spans"][0]["end"] = 0; },
       "not contiguous"},
      {"NoSpans", [](LedgerBuilder& b) { Trained(b, 47)["spans"] = Json::array(); },
       "has no spans"},
      {"VersionsGoBack",
       [](LedgerBuilder& b) {
         std::swap(Trained(b, 42)["spans"][0]["version"], Trained(b, 42)["spans"][1]["version"]);
         std::swap(Trained(b, 42)["spans"][0]["lineage"], Trained(b, 42)["spans"][1]["lineage"]);
       },
       "go back from version 6"},
      {"MoreLossThanTokens", [](LedgerBuilder& b) { Trained(b, 47)["loss_tokens"] = 5; },
       "has 5 loss and 0 masked tokens, but spans of only 4"},
      {"RedoOfNothing", [](LedgerBuilder& b) { Trained(b, 47)["redo"] = true; },
       "which never trained on it"},
  };
  return *kMutations;
}

const std::vector<Mutation>& HistoryMutations() {
  static const auto* const kMutations = new std::vector<Mutation>{
      {"DurableDigest", [](LedgerBuilder& b) { b.Rows("durable")[2]->at("digest") = "00"; },
       "digest of durable version 6 is 00"},
      {"ResumedDigest", [](LedgerBuilder& b) { b.Rows("resumed")[0]->at("digest") = "00"; },
       "digest of the resumed row is 00"},
      {"ResumedFromAnotherCheckpoint",
       [](LedgerBuilder& b) { b.Rows("resumed")[0]->at("checkpoint_sha256") = "00"; },
       "resumed from checkpoint 00, but version 4 is durable as"},
      {"ResumedWithoutACheckpoint",
       [](LedgerBuilder& b) { b.Rows("resumed")[0]->at("checkpoint_sha256") = ""; },
       "without a checkpoint_sha256"},
      {"UidChanged", [](LedgerBuilder& b) { Trained(b, 20)["uid"] = "j/x/0/0"; },
       "digest of durable version 4"},
      {"UidsSwapped",
       [](LedgerBuilder& b) { std::swap(Trained(b, 0)["uid"], Trained(b, 1)["uid"]); },
       "digest of durable version 2"},
      {"DurableBeforeItsSteps", [](LedgerBuilder& b) { b.Rows("durable")[2]->at("version") = 9; },
       "version 9 is durable, but only 6 steps"},
      {"DurableOfASupersededLineage",
       [](LedgerBuilder& b) { b.Rows("durable")[2]->at("lineage") = 0; },
       "durable row of superseded lineage 0"},
      {"RowOfASupersededLineage", [](LedgerBuilder& b) { Trained(b, 47)["lineage"] = 0; },
       "row of lineage 0 while lineage 1"},
      {"ForkAboveItsParent", [](LedgerBuilder& b) { b.Rows("resumed")[0]->at("fork_version") = 6; },
       "resumed from version 6, but lineage 0 only reached 5"},
      {"ForkOfNothing", [](LedgerBuilder& b) { b.Rows("resumed")[0]->at("parent_lineage") = 5; },
       "resumed from lineage 5, which never was"},
      {"LineageDoesNotGrow", [](LedgerBuilder& b) { b.Rows("resumed")[0]->at("lineage") = 0; },
       "lineage 0 does not grow"},
      {"AnotherGroupSize", [](LedgerBuilder& b) { b.files["job.yaml"] = "group_size: 4\n"; },
       "group_size is 4, but the ledger was opened with 2"},
      {"AnotherBound",
       [](LedgerBuilder& b) { b.files["job.yaml"] = "staleness: {max: 1, policy: drop}\n"; },
       "staleness.max is 1"},
      {"MoreStepsThanTheJob",
       [](LedgerBuilder& b) { b.files["job.yaml"] = "trainer: {steps: 6}\n"; },
       "trainer.steps is 6"},
      {"BrokenJob", [](LedgerBuilder& b) { b.files["job.yaml"] = "a: [\n"; }, "not YAML"},
  };
  return *kMutations;
}

const std::vector<Mutation>& CheckpointMutations() {
  static const auto* const kMutations = new std::vector<Mutation>{
      {"ManifestChanged", [](LedgerBuilder& b) { Manifest(b, 6) += "\n"; },
       "checkpoints/step-6: the SHA-256 of its manifest"},
      {"ManifestDigest",
       [](LedgerBuilder& b) { EditManifest(b, 6, [](Json& m) { m["digest"] = "00"; }); },
       "checkpoints/step-6: its digest is 00"},
      {"ManifestOfAnotherStep",
       [](LedgerBuilder& b) { EditManifest(b, 6, [](Json& m) { m["step"] = 5; }); },
       "checkpoints/step-6: its manifest is that of step 5"},
      {"ManifestOfAnotherJob",
       [](LedgerBuilder& b) { EditManifest(b, 6, [](Json& m) { m["job"] = "k"; }); },
       "belongs to job \"k\""},
      {"ManifestOfAnUnknownLineage",
       [](LedgerBuilder& b) { EditManifest(b, 6, [](Json& m) { m["lineage"] = 3; }); },
       "lineage 3 never reached version 6"},
      {"ManifestMissing",
       [](LedgerBuilder& b) { b.files.erase("checkpoints/step-6/manifest.json"); },
       "checkpoints/step-6: has no readable manifest.json"},
      {"ManifestMalformed", [](LedgerBuilder& b) { Manifest(b, 6) = "{}"; },
       "checkpoints/step-6: malformed manifest.json"},
      {"FileMissing",
       [](LedgerBuilder& b) { b.files.erase("checkpoints/step-6/model.safetensors"); },
       "model.safetensors: is missing"},
      {"FileTruncated",
       [](LedgerBuilder& b) { b.files["checkpoints/step-6/model.safetensors"].pop_back(); },
       "bytes; its manifest says"},
      {"FileFlipped",
       [](LedgerBuilder& b) { b.files["checkpoints/step-6/model.safetensors"][3] = '#'; },
       "its SHA-256 is not that of its manifest"},
      {"FileOutside",
       [](LedgerBuilder& b) {
         EditManifest(b, 6, [](Json& m) { m["files"][0]["name"] = "../../job.yaml"; });
       },
       "names a file outside itself"},
  };
  return *kMutations;
}

std::string NameOf(const ::testing::TestParamInfo<Mutation>& info) { return info.param.name; }

INSTANTIATE_TEST_SUITE_P(Rows, LedgerMutation, ::testing::ValuesIn(RowMutations()), NameOf);
INSTANTIATE_TEST_SUITE_P(Spans, LedgerMutation, ::testing::ValuesIn(SpanMutations()), NameOf);
INSTANTIATE_TEST_SUITE_P(History, LedgerMutation, ::testing::ValuesIn(HistoryMutations()), NameOf);
INSTANTIATE_TEST_SUITE_P(Checkpoints, LedgerMutation, ::testing::ValuesIn(CheckpointMutations()),
                         NameOf);

}  // namespace
}  // namespace freshet
