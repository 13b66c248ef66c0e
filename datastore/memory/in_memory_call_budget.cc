#include "datastore/memory/in_memory_call_budget.h"

#include <algorithm>

#include "base/status_macros.h"

namespace freshet {

absl::StatusOr<bool> InMemoryCallBudget::Spend(const std::string& component, int64_t limit) {
  FRESHET_RETURN_IF_ERROR(CheckSpend(component, limit));
  MutexLock lock(mu_);
  ComponentCalls& calls = calls_[component];
  calls.component = component;
  if (calls.spent >= limit) {
    calls.refused_at = std::max(calls.refused_at, limit);
    return false;
  }
  ++calls.spent;
  return true;
}

std::vector<ComponentCalls> InMemoryCallBudget::Read() const {
  std::vector<ComponentCalls> all;
  MutexLock lock(mu_);
  all.reserve(calls_.size());
  for (const auto& [name, calls] : calls_) all.push_back(calls);
  return all;
}

}  // namespace freshet
