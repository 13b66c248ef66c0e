#ifndef FRESHET_DATASTORE_MEMORY_IN_MEMORY_EVALUATION_STORE_H_
#define FRESHET_DATASTORE_MEMORY_IN_MEMORY_EVALUATION_STORE_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "datastore/change_counts.h"
#include "datastore/evaluation_store.h"

namespace freshet {

// Evaluations of a job whose roles share one process. Thread-safe.
class InMemoryEvaluationStore final : public EvaluationStore {
 public:
  // `clock` must outlive the store.
  InMemoryEvaluationStore(absl::Duration lease_ttl, int32_t max_row_failures, const Clock& clock)
      : lease_ttl_(lease_ttl), max_row_failures_(max_row_failures), clock_(clock) {}

  absl::Duration lease_ttl() const override { return lease_ttl_; }
  absl::Status Begin(const std::string& id, int64_t rows) override;
  absl::Status PutAnswers(const std::string& id, const PolicyVersion& policy,
                          const std::vector<EvaluationAnswer>& answers) override;
  absl::Status Abandon(const std::string& id, const std::string& reason) override;
  absl::StatusOr<EvaluationState> Read(const std::string& id) override;
  absl::Status End(const std::string& id) override;

  absl::StatusOr<std::vector<RowLease>> LeaseRowsFor(const RowRequest& request) override;
  absl::StatusOr<std::vector<absl::Status>> PutRows(Task task,
                                                    const std::vector<RowPut>& rows) override;
  absl::Status EndRow(Task task, int64_t token, RowEnd end, const std::string& reason) override;
  absl::StatusOr<std::vector<int64_t>> RenewLeases(const std::string& worker,
                                                   const std::vector<int64_t>& tokens) override;
  uint64_t ChangeCount(Topic) override { return changes_.Count(Topic::kEvaluation); }
  uint64_t AwaitChange(Topic, uint64_t seen, absl::Duration timeout) override {
    return changes_.Await(Topic::kEvaluation, seen, timeout);
  }
  void Close() override { changes_.Close(); }

 private:
  struct Row {
    EvaluationAnswer answer;
    int64_t token = 0;  // of the last lease
    bool leased = false;
    bool ended = false;
    std::string worker;
    std::string request_id;
    absl::Time expires;
    RowCounts counts;
    EvaluationRow result;
  };

  absl::Status CheckCurrent(const std::string& id) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // The row with this lease, live or done; null if there is none.
  Row* Find(int64_t token) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  RowLease Lease(int64_t number, Row& row) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void EndLease(Row& row, freshet::RowEnd end, const std::string& reason)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void ExpireLeases() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const absl::Duration lease_ttl_;
  const int32_t max_row_failures_;
  const Clock& clock_;
  Mutex mu_;
  ChangeCounts changes_;
  std::string id_ ABSL_GUARDED_BY(mu_);  // "": none is current
  int64_t total_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t ended_ ABSL_GUARDED_BY(mu_) = 0;
  PolicyVersion policy_ ABSL_GUARDED_BY(mu_);
  std::string abandoned_ ABSL_GUARDED_BY(mu_);
  std::map<int64_t, Row> rows_ ABSL_GUARDED_BY(mu_);
  int64_t last_token_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace freshet

#endif  // FRESHET_DATASTORE_MEMORY_IN_MEMORY_EVALUATION_STORE_H_
