#ifndef FRESHET_TESTS_SIMULATION_HISTORY_STORE_H_
#define FRESHET_TESTS_SIMULATION_HISTORY_STORE_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "services/base/file.h"
#include "services/base/mutex.h"
#include "tests/testing/forwarding_trajectory_store.h"
#include "weights/manifest.h"

namespace freshet {

// What one process did, as JSON lines in a file of its own: evidence for a checker that knows
// nothing of the code. A row is written after the fact, so a killed process may lack its last one.
// Thread-safe.
class History {
 public:
  // FOLDER/ROLE-PID.jsonl. Ends the process when it cannot be written: without evidence there is no
  // test.
  History(const std::string& folder, const std::string& role);
  // `fields`: a JSON object without its braces. Adds "t", nanoseconds of a clock that all processes
  // of this machine share.
  void Add(const std::string& fields);

 private:
  Mutex mu_;
  LineAppender file_ ABSL_GUARDED_BY(mu_);
};

// Checksum of everything that a response holds.
std::string ResponseHash(const Response& response);

// Writes down what a store acknowledged: samples put, steps committed.
class HistoryStore final : public ForwardingTrajectoryStore {
 public:
  HistoryStore(std::unique_ptr<TrajectoryStore> store, History& history)
      : ForwardingTrajectoryStore(*store), store_(std::move(store)), history_(history) {}

  absl::StatusOr<LeaseReply> LeasePrompts(const LeaseRequest& request) override;
  absl::StatusOr<std::vector<absl::Status>> PutSamples(
      const std::vector<SamplePut>& samples) override;
  absl::StatusOr<CommitReceipt> CommitStep(int64_t epoch, int64_t step,
                                           const std::vector<int64_t>& ordinals,
                                           const std::string& content_hash) override;

 private:
  void AddPut(const SamplePut& sample, const absl::Status& status);

  const std::unique_ptr<TrajectoryStore> store_;
  History& history_;
  Mutex mu_;
  std::map<int64_t, SampleKey> leases_ ABSL_GUARDED_BY(mu_);  // by token; the index is not set
};

}  // namespace freshet

#endif  // FRESHET_TESTS_SIMULATION_HISTORY_STORE_H_
