#ifndef FRESHET_TESTS_CONTRACT_TRAJECTORY_STORE_FIXTURE_H_
#define FRESHET_TESTS_CONTRACT_TRAJECTORY_STORE_FIXTURE_H_

#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/str_cat.h"
#include "datastore/trajectory_store.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/fake_clock.h"

namespace freshet {

// The backend under test. `create` returns null if it refuses the options.
struct StoreBackend {
  std::string name;
  std::function<std::unique_ptr<TrajectoryStore>(StoreOptions, StoreOrigin, FakeClock&)> create;
};
inline void PrintTo(Disposition disposition, std::ostream* out) { *out << Name(disposition); }
inline void PrintTo(const StoreBackend& backend, std::ostream* out) { *out << backend.name; }

// Returns a response of `tokens` tokens, all loss-bearing, sampled at `version`.
inline Response ResponseAt(int64_t version, int32_t tokens = 3, int64_t lineage = 0) {
  Response response;
  response.response_ids.assign(static_cast<size_t>(tokens), 7);
  response.behavior_logprobs.assign(static_cast<size_t>(tokens), -0.5f);
  response.loss_mask.assign(static_cast<size_t>(tokens), 1);
  response.spans = {{{lineage, version}, 0, tokens}};
  response.finish = FinishReason::kStop;
  return response;
}

// Returns the response of an episode in which the policy was not asked.
inline Response NotAskedAt(int64_t version) {
  Response response = ResponseAt(version, 2);
  response.loss_mask.assign(2, 0);
  response.finish = FinishReason::kNotAsked;
  return response;
}

// Extends `response` by `tokens` tokens sampled at `version`.
inline Response Continued(Response response, int64_t version, int32_t tokens = 2,
                          int64_t lineage = 0) {
  const int32_t begin = static_cast<int32_t>(response.response_ids.size());
  for (int32_t i = 0; i < tokens; ++i) {
    response.response_ids.push_back(8);
    response.behavior_logprobs.push_back(-0.25f);
    response.loss_mask.push_back(1);
  }
  response.spans.push_back({{lineage, version}, begin, begin + tokens});
  return response;
}

// Helpers for the operations of a job's roles. Defaults: B = 2, G = 2, eta = 1. A test may change
// options_ before its first store() call, which creates the store.
class TrajectoryStoreContract : public testing::TestWithParam<StoreBackend> {
 protected:
  TrajectoryStoreContract() {
    options_.job = "job";
    options_.staleness.max = 1;
    options_.staleness.groups_per_step = 2;
    options_.staleness.max_in_flight = 100;
    options_.group_size = 2;
    options_.last_step = 100;
    options_.capacity_groups = 1000;
    options_.max_queued_prompts = 100;
  }

  TrajectoryStore& store() {
    if (store_ == nullptr) {
      store_ = GetParam().create(options_, origin_, clock_);
      if (store_ == nullptr) {
        ADD_FAILURE() << "the backend refused the options";
        std::abort();
      }
    }
    return *store_;
  }

  // The next store() call creates another store, which starts at `origin`.
  void ReplaceStore(StoreOrigin origin) {
    origin_ = std::move(origin);
    lineage_ = origin_.policy.lineage;
    store_ = nullptr;
  }

  static Prompt PromptAt(int64_t ordinal) {
    Prompt prompt;
    prompt.ordinal = ordinal;
    prompt.prompt_ids = {1, 2};
    prompt.attributes["answer"] = StrCat(ordinal);
    return prompt;
  }
  void PutPrompts(int64_t n) {
    std::vector<Prompt> prompts;
    for (int64_t i = 0; i < n; ++i) prompts.push_back(PromptAt(next_ordinal_++));
    const auto reply = store().PutPrompts(prompts);
    ASSERT_TRUE(reply.ok()) << reply.status();
    ASSERT_EQ(reply->accepted, n);
  }
  LeaseReply Ask(int64_t version, int64_t n, const std::string& worker = "w0",
                 const std::string& request_id = "") {
    const auto reply = store().LeasePrompts({worker, request_id, {lineage_, version}, n});
    EXPECT_TRUE(reply.ok()) << reply.status();
    return reply.ok() ? *reply : LeaseReply{};
  }
  std::vector<GroupLease> Lease(int64_t version, int64_t n, const std::string& worker = "w0") {
    const LeaseReply reply = Ask(version, n, worker);
    EXPECT_EQ(reply.leases.size(), static_cast<size_t>(n)) << reply.reason;
    return reply.leases;
  }
  void Finish(const GroupLease& lease, int64_t version) {
    for (const int32_t index : lease.missing) {
      const absl::Status status =
          store().PutSample(lease.token, index, ResponseAt(version, 3, lineage_));
      EXPECT_TRUE(status.ok()) << status;
    }
  }
  static FieldValues ScoreOf(double reward, ScoreOutcome outcome = ScoreOutcome::kOk) {
    auto score = std::make_shared<Score>();
    score->reward = reward;
    score->outcome = outcome;
    return {score};
  }
  std::vector<RowLease> Rows(Task task, int64_t n = 1000, const std::string& worker = "r0") {
    const auto rows = store().LeaseRows(task, worker, n);
    EXPECT_TRUE(rows.ok()) << rows.status();
    return rows.ok() ? *rows : std::vector<RowLease>{};
  }
  // Scores all waiting rows. Sample i of a group gets reward i; with `same`, all get the same.
  void ScoreAll(bool same = false) {
    for (const RowLease& row : Rows(Task::kScore)) {
      const absl::Status status = store().PutFields(
          Task::kScore, row.token, ScoreOf(same ? 1.0 : static_cast<double>(row.sample.key.index)));
      EXPECT_TRUE(status.ok()) << status;
    }
  }
  // Puts, leases, finishes and scores `n` groups at `version`.
  void Produce(int64_t n, int64_t version) {
    PutPrompts(n);
    for (const GroupLease& lease : Lease(version, n)) Finish(lease, version);
    ScoreAll();
  }
  int64_t OpenEpoch(int64_t version = 0) { return OpenEpochAt({lineage_, version}); }
  int64_t OpenEpochAt(PolicyVersion loaded) {
    const auto reply = store().OpenEpoch("t0", loaded);
    EXPECT_TRUE(reply.ok()) << reply.status();
    epoch_ = reply.ok() ? reply->epoch : -1;
    return epoch_;
  }
  NextBatchReply NextBatch(int64_t step) {
    const auto reply = store().NextBatch(epoch_, step);
    EXPECT_TRUE(reply.ok()) << reply.status();
    return reply.ok() ? *reply : NextBatchReply{};
  }
  static std::vector<int64_t> Ordinals(const NextBatchReply& batch) {
    std::vector<int64_t> ordinals;
    for (const TrainGroup& group : batch.groups) ordinals.push_back(group.ordinal);
    return ordinals;
  }
  static std::string HashOf(int64_t step) { return StrCat("hash", step); }
  // Claims a batch for `step`, which must be ready, and commits it.
  CommitReceipt Train(int64_t step) { return Train(step, HashOf(step)); }
  CommitReceipt Train(int64_t step, const std::string& content_hash) {
    const NextBatchReply batch = NextBatch(step);
    EXPECT_TRUE(batch.ready) << batch.reason;
    const auto receipt = store().CommitStep(epoch_, step, Ordinals(batch), content_hash);
    EXPECT_TRUE(receipt.ok()) << receipt.status();
    return receipt.ok() ? *receipt : CommitReceipt{};
  }
  // Commits steps 1..`steps` in lineage 0, then redoes them from version `loaded`. From step `from`
  // on the weights differ, which starts lineage 1.
  void DivergeAt(int64_t from, int64_t steps, int64_t loaded = 0) {
    OpenEpoch();
    for (int64_t step = 1; step <= steps; ++step) {
      Produce(2, step - 1);
      Train(step);
    }
    OpenEpoch(loaded);
    RedoOthers(loaded + 1, from, steps, "other");
    lineage_ = 1;
  }
  // Redoes `first`..`last`. From step `from` on, the content hash is `name` plus the step.
  void RedoOthers(int64_t first, int64_t from, int64_t last, const std::string& name) {
    for (int64_t step = first; step <= last; ++step) {
      Train(step, step < from ? HashOf(step) : StrCat(name, step));
    }
  }
  absl::Status TryOpenEpoch(PolicyVersion loaded) {
    return store().OpenEpoch("t1", loaded).status();
  }
  StoreStats Stats() { return *store().Stats(); }
  int64_t Now(GroupState state) { return Stats().groups[static_cast<int>(state)]; }
  std::vector<LedgerRow> Ledger() { return *store().ReadLedger(0, 1'000'000); }
  std::vector<LedgerRow> Ledger(LedgerEvent event) {
    std::vector<LedgerRow> rows;
    for (const LedgerRow& row : Ledger()) {
      if (row.event == event) rows.push_back(row);
    }
    return rows;
  }
  void PassLease() { clock_.Advance(options_.lease_ttl + absl::Seconds(1)); }

  FakeClock clock_;
  StoreOptions options_;
  StoreOrigin origin_;
  int64_t lineage_ = 0;
  int64_t next_ordinal_ = 0;
  int64_t epoch_ = 0;

 private:
  std::unique_ptr<TrajectoryStore> store_;
};

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

constexpr absl::StatusCode kInvalid = absl::StatusCode::kInvalidArgument;
constexpr absl::StatusCode kPrecondition = absl::StatusCode::kFailedPrecondition;

}  // namespace freshet

#endif  // FRESHET_TESTS_CONTRACT_TRAJECTORY_STORE_FIXTURE_H_
