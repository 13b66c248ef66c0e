#include "controller/kubernetes/deletion_costs.h"

#include <algorithm>
#include <limits>

#include "controller/kubernetes/scale_target.h"

namespace freshet {

std::vector<PodCost> DeletionCosts::Plan(const std::vector<Member>& workers,
                                         const std::set<std::string>& pools, absl::Time now) {
  std::vector<std::pair<absl::Time, PodCost>> due;
  std::set<std::string> known;
  for (const Member& member : workers) {
    const std::string& name = member.record.name();
    if (member.record.role() != cluster::v1::ROLE_ROLLOUT || member.record.lost() ||
        !member.connected || !pools.contains(member.record.pool()) || !IsObjectName(name)) {
      continue;
    }
    known.insert(name);
    const Pod& pod = pods_[name];
    const int64_t cost = std::clamp<int64_t>(member.status.running_sequences(), 0,
                                             std::numeric_limits<int32_t>::max());
    if (cost == pod.told || now < pod.next) continue;
    due.emplace_back(pod.next, PodCost{name, static_cast<int32_t>(cost)});
  }
  std::erase_if(pods_, [&known](const auto& entry) { return !known.contains(entry.first); });
  std::stable_sort(due.begin(), due.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<PodCost> plan;
  for (auto& [next, cost] : due) {
    if (plan.size() == kMostAtOnce) break;
    plan.push_back(std::move(cost));
  }
  return plan;
}

void DeletionCosts::Told(const PodCost& cost, absl::Time now) {
  pods_[cost.pod] = {cost.cost, now + kPeriod};
}

void DeletionCosts::Failed(const PodCost& cost, absl::Time now) {
  pods_[cost.pod].next = now + kAfterFailure;
}

}  // namespace freshet
