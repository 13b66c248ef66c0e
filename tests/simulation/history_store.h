#ifndef FRESHET_TESTS_SIMULATION_HISTORY_STORE_H_
#define FRESHET_TESTS_SIMULATION_HISTORY_STORE_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/simulation/history.h"
#include "tests/testing/forwarding_trajectory_store.h"

namespace freshet {

// Records acknowledged store operations of a process: revoked workers, leases, samples and scores
// put, and committed steps. Prompts are recorded before the call.
class HistoryStore final : public ForwardingTrajectoryStore {
 public:
  HistoryStore(std::unique_ptr<TrajectoryStore> store, History& history)
      : ForwardingTrajectoryStore(*store), store_(std::move(store)), history_(history) {}

  // Returns a store wrapper, empty if `history` is null. `history` must outlive the stores.
  static std::function<std::unique_ptr<TrajectoryStore>(std::unique_ptr<TrajectoryStore>)> Wrap(
      History* history);

  absl::StatusOr<PutPromptsReply> PutPrompts(const std::vector<Prompt>& prompts) override;
  absl::StatusOr<LeaseReply> LeasePrompts(const LeaseRequest& request) override;
  absl::StatusOr<std::vector<absl::Status>> PutSamples(
      const std::vector<SamplePut>& samples) override;
  absl::StatusOr<std::vector<RowLease>> LeaseRowsFor(const RowRequest& request) override;
  absl::StatusOr<std::vector<absl::Status>> PutRows(Task task,
                                                    const std::vector<RowPut>& rows) override;
  absl::StatusOr<int64_t> RevokeWorker(const std::string& worker) override;
  absl::StatusOr<CommitReceipt> CommitStep(int64_t epoch, int64_t step,
                                           const std::vector<int64_t>& ordinals,
                                           const std::string& content_hash) override;

 private:
  struct Row {
    std::string uid;
    std::string hash;  // of the response
  };
  void AddLease(const char* kind, const std::string& worker, int64_t begin,
                const std::vector<int64_t>& tokens);
  void AddPut(const SamplePut& sample, const absl::Status& status);
  void AddScore(const RowPut& row, const absl::Status& status);

  const std::unique_ptr<TrajectoryStore> store_;
  History& history_;
  Mutex mu_;
  std::map<int64_t, SampleKey> leases_ ABSL_GUARDED_BY(mu_);  // by token; sample index unset
  std::map<int64_t, Row> rows_ ABSL_GUARDED_BY(mu_);          // by token
};

}  // namespace freshet

#endif  // FRESHET_TESTS_SIMULATION_HISTORY_STORE_H_
