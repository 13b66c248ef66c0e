#ifndef FRESHET_DATASTORE_MEMORY_IN_MEMORY_CALL_BUDGET_H_
#define FRESHET_DATASTORE_MEMORY_IN_MEMORY_CALL_BUDGET_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "datastore/call_budget.h"

namespace freshet {

// Counts from 0 in each process. Thread-safe.
class InMemoryCallBudget final : public CallBudget {
 public:
  absl::StatusOr<bool> Spend(const std::string& component, int64_t limit) override
      ABSL_LOCKS_EXCLUDED(mu_);
  // By name of the component.
  std::vector<ComponentCalls> Read() const ABSL_LOCKS_EXCLUDED(mu_);

 private:
  mutable Mutex mu_;
  std::map<std::string, ComponentCalls> calls_ ABSL_GUARDED_BY(mu_);
};

}  // namespace freshet

#endif  // FRESHET_DATASTORE_MEMORY_IN_MEMORY_CALL_BUDGET_H_
