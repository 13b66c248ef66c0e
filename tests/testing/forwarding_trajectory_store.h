#ifndef FRESHET_TESTS_TESTING_FORWARDING_TRAJECTORY_STORE_H_
#define FRESHET_TESTS_TESTING_FORWARDING_TRAJECTORY_STORE_H_

#include <string>
#include <vector>

#include "datastore/trajectory_store.h"

namespace freshet {

// Forwards every call to another store. Tests override the operations that they observe or fail.
class ForwardingTrajectoryStore : public TrajectoryStore {
 public:
  explicit ForwardingTrajectoryStore(TrajectoryStore& store) : store_(store) {}

  const StoreOptions& options() const override { return store_.options(); }
  EvaluationStore& evaluations() override { return store_.evaluations(); }
  CallBudget& calls() override { return store_.calls(); }
  absl::StatusOr<PutPromptsReply> PutPrompts(const std::vector<Prompt>& prompts) override {
    return store_.PutPrompts(prompts);
  }
  absl::StatusOr<LeaseReply> LeasePrompts(const LeaseRequest& request) override {
    return store_.LeasePrompts(request);
  }
  absl::StatusOr<std::vector<int64_t>> RenewLeases(const std::string& worker,
                                                   const std::vector<int64_t>& tokens) override {
    return store_.RenewLeases(worker, tokens);
  }
  absl::Status ReturnLease(int64_t token, const std::vector<int32_t>& indices,
                           const std::vector<Response>& partials) override {
    return store_.ReturnLease(token, indices, partials);
  }
  absl::Status FailLease(int64_t token, const std::string& reason) override {
    return store_.FailLease(token, reason);
  }
  absl::Status HandBackLease(int64_t token, const std::string& reason) override {
    return store_.HandBackLease(token, reason);
  }
  absl::StatusOr<std::vector<absl::Status>> PutSamples(
      const std::vector<SamplePut>& samples) override {
    return store_.PutSamples(samples);
  }
  absl::Status CountGeneration(const GenerationTotals& added) override {
    return store_.CountGeneration(added);
  }
  absl::StatusOr<std::vector<RowLease>> LeaseRowsFor(const RowRequest& request) override {
    return store_.LeaseRowsFor(request);
  }
  absl::StatusOr<std::vector<absl::Status>> PutRows(Task task,
                                                    const std::vector<RowPut>& rows) override {
    return store_.PutRows(task, rows);
  }
  absl::Status EndRow(Task task, int64_t token, RowEnd end, const std::string& reason) override {
    return store_.EndRow(task, token, end, reason);
  }
  absl::StatusOr<int64_t> RevokeWorker(const std::string& worker) override {
    return store_.RevokeWorker(worker);
  }
  absl::StatusOr<OpenEpochReply> OpenEpochFor(const EpochRequest& request) override {
    return store_.OpenEpochFor(request);
  }
  absl::StatusOr<NextBatchReply> NextBatch(int64_t epoch, int64_t step) override {
    return store_.NextBatch(epoch, step);
  }
  absl::StatusOr<std::vector<SampleView>> ReadSamples(const std::vector<SampleKey>& keys) override {
    return store_.ReadSamples(keys);
  }
  absl::StatusOr<CommitReceipt> CommitStep(int64_t epoch, int64_t step,
                                           const std::vector<int64_t>& ordinals,
                                           const std::string& content_hash) override {
    return store_.CommitStep(epoch, step, ordinals, content_hash);
  }
  absl::Status MarkDurable(int64_t epoch, int64_t version,
                           const std::string& checkpoint_sha256) override {
    return store_.MarkDurable(epoch, version, checkpoint_sha256);
  }
  absl::Status RecordResume(int64_t epoch_hint, int64_t parent_lineage, int64_t fork_version,
                            const std::string& checkpoint_sha256) override {
    return store_.RecordResume(epoch_hint, parent_lineage, fork_version, checkpoint_sha256);
  }
  absl::StatusOr<int64_t> Sweep() override { return store_.Sweep(); }
  absl::StatusOr<StoreStats> Stats() override { return store_.Stats(); }
  absl::StatusOr<Explanation> Explain() override { return store_.Explain(); }
  absl::StatusOr<PromptCursor> Cursor() override { return store_.Cursor(); }
  absl::StatusOr<std::vector<LedgerRow>> ReadLedger(int64_t after_seq, int64_t max_rows) override {
    return store_.ReadLedger(after_seq, max_rows);
  }
  absl::Status TrimLedger(int64_t upto_seq) override { return store_.TrimLedger(upto_seq); }
  absl::StatusOr<std::vector<DeadLetter>> DeadLetters(int64_t max_letters) override {
    return store_.DeadLetters(max_letters);
  }
  uint64_t ChangeCount(Topic topic) override { return store_.ChangeCount(topic); }
  uint64_t AwaitChange(Topic topic, uint64_t seen, absl::Duration timeout) override {
    return store_.AwaitChange(topic, seen, timeout);
  }
  void Close() override { store_.Close(); }

 private:
  TrajectoryStore& store_;
};

}  // namespace freshet

#endif  // FRESHET_TESTS_TESTING_FORWARDING_TRAJECTORY_STORE_H_
