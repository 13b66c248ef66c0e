#ifndef FRESHET_TESTS_TESTING_FORWARDING_EVALUATION_STORE_H_
#define FRESHET_TESTS_TESTING_FORWARDING_EVALUATION_STORE_H_

#include <string>
#include <vector>

#include "datastore/evaluation_store.h"

namespace freshet {

// Forwards every call to another store; calls of rollouts and the controller fail with `status`
// unless it is OK.
class ForwardingEvaluationStore final : public EvaluationStore {
 public:
  explicit ForwardingEvaluationStore(EvaluationStore& store) : store_(store) {}

  absl::Duration lease_ttl() const override { return store_.lease_ttl(); }
  absl::Status Begin(const std::string& id, int64_t rows) override {
    return status.ok() ? store_.Begin(id, rows) : status;
  }
  absl::Status PutAnswers(const std::string& id, const PolicyVersion& policy,
                          const std::vector<EvaluationAnswer>& answers) override {
    ++put_calls;
    return status.ok() ? store_.PutAnswers(id, policy, answers) : status;
  }
  absl::Status Abandon(const std::string& id, const std::string& reason) override {
    return status.ok() ? store_.Abandon(id, reason) : status;
  }
  absl::StatusOr<EvaluationState> Read(const std::string& id) override {
    if (!status.ok()) return status;
    return store_.Read(id);
  }
  absl::Status End(const std::string& id) override { return status.ok() ? store_.End(id) : status; }

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
  absl::StatusOr<std::vector<int64_t>> RenewLeases(const std::string& worker,
                                                   const std::vector<int64_t>& tokens) override {
    return store_.RenewLeases(worker, tokens);
  }
  uint64_t ChangeCount(Topic topic) override { return store_.ChangeCount(topic); }
  uint64_t AwaitChange(Topic topic, uint64_t seen, absl::Duration timeout) override {
    return store_.AwaitChange(topic, seen, timeout);
  }
  void Close() override { store_.Close(); }

  absl::Status status;
  int put_calls = 0;

 private:
  EvaluationStore& store_;
};

}  // namespace freshet

#endif  // FRESHET_TESTS_TESTING_FORWARDING_EVALUATION_STORE_H_
