#include "datastore/call_budget.h"

#include "base/str_cat.h"

namespace freshet {

absl::Status CheckSpend(const std::string& component, int64_t limit) {
  if (component.empty()) return InvalidArgument("component: empty: name the one that calls");
  if (limit < 1) return InvalidArgument("limit: ", limit, " calls: use at least 1");
  return absl::OkStatus();
}

}  // namespace freshet
