#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "base/digest.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runlog/ledger_verifier.h"
#include "tests/runlog/ledger_builder.h"

namespace freshet {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using Json = LedgerBuilder::Json;

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
