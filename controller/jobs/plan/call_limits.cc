#include "controller/jobs/plan/call_limits.h"

#include "job/reward_types.h"

namespace freshet {

std::string FindCallsUsedUp(const job::v1::Reward& reward,
                            const std::vector<ComponentCalls>& calls) {
  for (const ComponentCalls& counted : calls) {
    const auto found = reward.components().find(counted.component);
    if (found == reward.components().end() || !found->second.has_max_calls()) continue;
    const int64_t max_calls = found->second.max_calls();
    if (counted.refused_at >= max_calls) return CallsUsedUp(counted.component, max_calls);
  }
  return "";
}

}  // namespace freshet
