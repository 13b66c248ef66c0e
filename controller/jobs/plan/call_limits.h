#ifndef FRESHET_CONTROLLER_JOBS_PLAN_CALL_LIMITS_H_
#define FRESHET_CONTROLLER_JOBS_PLAN_CALL_LIMITS_H_

#include <string>
#include <vector>

#include "datastore/call_budget.h"
#include "freshet/job/v1/job_spec.pb.h"

namespace freshet {

// Why a job ends whose component needed a call beyond its max_calls; "" if none did, or max_calls
// has been raised since. `calls`: StoreStats::calls. Pure.
std::string FindCallsUsedUp(const job::v1::Reward& reward,
                            const std::vector<ComponentCalls>& calls);

}  // namespace freshet

#endif  // FRESHET_CONTROLLER_JOBS_PLAN_CALL_LIMITS_H_
