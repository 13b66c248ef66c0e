#ifndef FRESHET_TESTS_RUNLOG_LEDGER_BUILDER_H_
#define FRESHET_TESTS_RUNLOG_LEDGER_BUILDER_H_

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/digest.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "runlog/ledger_verifier.h"
#include "tests/runlog/scratch_folder.h"

namespace freshet {

// Builds valid ledgers row by row with matching checkpoints, so that a test can corrupt one thing.
// B = 3, G = 2, bound 2.
class LedgerBuilder {
 public:
  using Json = nlohmann::ordered_json;
  static constexpr int64_t kGroups = 3;
  static constexpr int64_t kSamples = 2;

  std::vector<Json> rows;
  std::map<std::string, std::string> files;  // by path relative to the run folder

  explicit LedgerBuilder(const std::string& disposition = "wait") {
    Add({{"event", "open"},
         {"job", "j"},
         {"bound", 2},
         {"disposition", disposition},
         {"B", kGroups},
         {"G", kSamples}});
    digest_after_[0] = Sha256Hex("");
    files["job.yaml"] =
        "name: j\nprompts_per_step: 3\ngroup_size: 2\nstaleness: {max: 2, policy: " + disposition +
        "}\ntrainer: {steps: 100}\n";
  }

  Json& Add(Json row) {
    Json numbered = {{"seq", next_seq_++}};
    numbered.update(row);
    rows.push_back(std::move(numbered));
    return rows.back();
  }

  // Appends a training step; the samples of its first group have two spans.
  void Step() {
    std::string digest = digest_after_.rbegin()->second;
    for (int64_t group = 0; group < kGroups; ++group, ++next_prompt_) {
      for (int64_t sample = 0; sample < kSamples; ++sample) {
        const Json row = Sample("trained", next_prompt_, sample);
        digest = Sha256Hex(digest + row["uid"].get<std::string>());
        Add(row);
      }
    }
    digest_after_[++version_] = digest;
  }

  // A row about a sample at the current version.
  Json Sample(const std::string& event, int64_t prompt, int64_t sample) const {
    const int64_t oldest = std::max(fork_version_, version_ - 2);
    Json spans = Json::array();
    if (prompt % kGroups == 0 && oldest < version_) {
      spans.push_back(
          {{"lineage", LineageOf(oldest)}, {"version", oldest}, {"begin", 0}, {"end", 2}});
      spans.push_back(
          {{"lineage", LineageOf(version_)}, {"version", version_}, {"begin", 2}, {"end", 4}});
    } else {
      spans.push_back(
          {{"lineage", LineageOf(version_)}, {"version", version_}, {"begin", 0}, {"end", 4}});
    }
    const int64_t min_version = spans[0]["version"];
    return {{"event", event},
            {"epoch", epoch_},
            {"lineage", lineage_},
            {"step", version_ + 1},
            {"train_version", version_},
            {"uid", "j/" + std::to_string(prompt) + "/" + std::to_string(lineage_) + "/" +
                        std::to_string(sample)},
            {"prompt", prompt},
            {"attempt", lineage_},
            {"sample", sample},
            {"redo", false},
            {"loss_tokens", 4},
            {"masked_tokens", 0},
            {"spans", spans},
            {"min_version", min_version},
            {"max_version", version_}};
  }

  // Writes checkpoints/step-VERSION and its durable row.
  void Checkpoint() {
    const std::string folder = "checkpoints/step-" + std::to_string(version_) + "/";
    const std::string weights =
        "weights of " + std::to_string(lineage_) + "/" + std::to_string(version_);
    const Json manifest = {{"format", 1},
                           {"job", "j"},
                           {"step", version_},
                           {"lineage", lineage_},
                           {"version", version_},
                           {"digest", digest_after_.at(version_)},
                           {"files",
                            {{{"name", "model.safetensors"},
                              {"bytes", weights.size()},
                              {"sha256", Sha256Hex(weights)}}}}};
    files[folder + "model.safetensors"] = weights;
    files[folder + "manifest.json"] = manifest.dump(1);
    sha256_[version_] = Sha256Hex(manifest.dump(1));
    Add({{"event", "durable"},
         {"lineage", lineage_},
         {"version", version_},
         {"checkpoint_sha256", sha256_[version_]},
         {"digest", digest_after_.at(version_)}});
  }

  // Resumes from `version` (a checkpoint's, or 0) in a new lineage.
  void Fork(int64_t version) {
    const std::string sha256 = sha256_.contains(version) ? sha256_.at(version) : "";
    const int64_t parent = lineage_++;
    Add({{"event", "resumed"},
         {"epoch", ++epoch_},
         {"lineage", lineage_},
         {"parent_lineage", parent},
         {"fork_version", version},
         {"checkpoint_sha256", sha256},
         {"digest", digest_after_.at(version)}});
    digest_after_.erase(digest_after_.upper_bound(version), digest_after_.end());
    version_ = version;
    fork_version_ = version;
    fork_lineage_ = LineageOf(version);
    next_prompt_ = kGroups * version;
  }

  // Resumes and redoes the steps after `version`.
  void Redo(int64_t version) {
    Add({{"event", "resumed"},
         {"epoch", ++epoch_},
         {"lineage", lineage_},
         {"parent_lineage", lineage_},
         {"checkpoint_sha256", sha256_.at(version)},
         {"digest", digest_after_.at(version)}});
    const std::vector<Json> before = rows;
    for (Json row : before) {
      if (row["event"] != "trained" || row["train_version"] < version || row["redo"]) continue;
      row["redo"] = true;
      row["epoch"] = epoch_;
      row.erase("seq");
      Add(row);
    }
  }

  // Another trainer redoes the steps after `version` with different weights in lineage + 1. If
  // `steps` >= 0, it dies after that many.
  void Diverge(int64_t version, int64_t steps = -1) {
    ++epoch_;
    fork_lineage_ = LineageOf(version);
    fork_version_ = version;
    ++lineage_;
    Again(version, steps < 0 ? version_ : version + steps);
  }
  // Another trainer redoes the steps after `version` with the same weights.
  void RedoInEpoch(int64_t version) {
    ++epoch_;
    Again(version, version_);
  }

  std::vector<Json*> Rows(const std::string& event) {
    std::vector<Json*> found;
    for (Json& row : rows) {
      if (row["event"] == event) found.push_back(&row);
    }
    return found;
  }

  void Write(const ScratchFolder& folder, const std::string& torn = "") const {
    std::string ledger;
    for (const Json& row : rows) ledger += row.dump() + "\n";
    folder.Write("ledger.jsonl", ledger + torn);
    for (const auto& [path, contents] : files) folder.Write(path, contents);
  }

  // Two lineages: steps 1..5 with checkpoints 2 and 4, then resumed from 4: steps 5..6, checkpoint
  // 6, step 7. Includes samples that were not trained.
  static LedgerBuilder Forked() {
    LedgerBuilder builder;
    for (int64_t step = 1; step <= 5; ++step) {
      builder.Step();
      if (step % 2 == 0) builder.Checkpoint();
    }
    builder.Fork(4);
    Json dropped = builder.Sample("dropped", 900, 0);
    dropped["reason"] = "orphaned";
    builder.Add(dropped);
    builder.Step();
    Json filtered = builder.Sample("filtered", 901, 1);
    filtered["reason"] = "no_variance";
    builder.Add(filtered);
    builder.Step();
    builder.Checkpoint();
    builder.Step();
    return builder;
  }

 private:
  void Again(int64_t version, int64_t last) {
    const std::vector<Json> before = rows;
    for (Json row : before) {
      if (row["event"] != "trained" || row["redo"]) continue;
      if (row["train_version"] < version || row["train_version"] >= last) continue;
      row["redo"] = true;
      row["epoch"] = epoch_;
      row["lineage"] = lineage_;
      row.erase("seq");
      Add(row);
    }
  }
  // The lineage that produced a version of the current history.
  int64_t LineageOf(int64_t version) const {
    return version > fork_version_ || lineage_ == 0 ? lineage_ : fork_lineage_;
  }

  int64_t next_seq_ = 0;
  int64_t next_prompt_ = 0;
  int64_t epoch_ = 1;
  int64_t lineage_ = 0;
  int64_t fork_lineage_ = 0;
  int64_t fork_version_ = 0;
  int64_t version_ = 0;
  std::map<int64_t, std::string> digest_after_;
  std::map<int64_t, std::string> sha256_;
};

inline VerifyReport Verify(const LedgerBuilder& builder, const std::string& torn = "") {
  const ScratchFolder folder;
  builder.Write(folder, torn);
  absl::StatusOr<VerifyReport> report = VerifyRun(folder.path());
  EXPECT_TRUE(report.ok()) << report.status();
  return report.ok() ? *std::move(report) : VerifyReport{};
}

}  // namespace freshet

#endif  // FRESHET_TESTS_RUNLOG_LEDGER_BUILDER_H_
