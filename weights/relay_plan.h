#ifndef FRESHET_WEIGHTS_RELAY_PLAN_H_
#define FRESHET_WEIGHTS_RELAY_PLAN_H_

#include <string>
#include <vector>

#include "weights/weight_member.h"

namespace freshet {

// Members after the first of a chain, at most.
inline constexpr int kMaxRelayed = 1024;

struct RelayPlan {
  // The trainer sends to the first member of each chain, and each member relays to the next.
  std::vector<std::vector<WeightMember>> chains;
  std::string reason;  // such as "2 chains for 12 members of 2 sites"
};

// Divides members into chains of one site each, in the order given: one member takes a version from
// the trainer, the others from a member of their site. The trainer sends to another member if the
// first one fails, is too slow, or cannot relay. Only a site with more members than a chain may
// have gets several chains. Pure.
RelayPlan PlanRelay(const std::vector<WeightMember>& members);

}  // namespace freshet

#endif  // FRESHET_WEIGHTS_RELAY_PLAN_H_
