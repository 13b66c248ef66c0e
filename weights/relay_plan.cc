#include "weights/relay_plan.h"

#include <map>

#include "base/str_cat.h"

namespace freshet {

RelayPlan PlanRelay(const std::vector<WeightMember>& members) {
  RelayPlan plan;
  std::map<std::string, size_t> open;  // site: its chain that takes more members
  for (const WeightMember& member : members) {
    const auto [found, is_new] = open.try_emplace(member.site, plan.chains.size());
    if (!is_new && plan.chains[found->second].size() > kMaxRelayed) {
      found->second = plan.chains.size();
    }
    if (found->second == plan.chains.size()) plan.chains.emplace_back();
    plan.chains[found->second].push_back(member);
  }
  plan.reason = StrCat(plan.chains.size(), " chains for ", members.size(), " members of ",
                       open.size(), " sites");
  return plan;
}

}  // namespace freshet
