#ifndef FRESHET_DATASTORE_CALL_BUDGET_H_
#define FRESHET_DATASTORE_CALL_BUDGET_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace freshet {

// Calls that a job has sent to the server of one component of its reward.
struct ComponentCalls {
  std::string component;
  int64_t spent = 0;
  int64_t refused_at = 0;  // highest limit at which a call was refused; 0: none was
  friend bool operator==(const ComponentCalls&, const ComponentCalls&) = default;
};

// Counts the calls of a job's components that have a limit, over all of the job's reward workers.
// StoreStats::calls has the counts. Thread-safe.
class CallBudget {
 public:
  virtual ~CallBudget() = default;
  // Counts one more call of `component`, unless `limit` calls are spent. Returns whether it was
  // counted; only then may it be sent. A limit that is raised later grants calls again.
  // INVALID_ARGUMENT: an empty component, or a limit below 1. UNAVAILABLE: the backend cannot be
  // reached; the call may have been counted.
  virtual absl::StatusOr<bool> Spend(const std::string& component, int64_t limit) = 0;
};

// OK, or the INVALID_ARGUMENT of Spend.
absl::Status CheckSpend(const std::string& component, int64_t limit);

}  // namespace freshet

#endif  // FRESHET_DATASTORE_CALL_BUDGET_H_
