#ifndef FRESHET_CONTROLLER_JOBS_PLAN_DEATH_REASON_H_
#define FRESHET_CONTROLLER_JOBS_PLAN_DEATH_REASON_H_

#include <string>

#include "datastore/trajectory_store.h"

namespace freshet {

// Reason of a dead group as one line of valid UTF-8, about 300 bytes at most: "score_failed: 3
// times: infra_error: ...", with the error of its last attempt.
std::string ReasonLine(const DeadLetter& letter);

// "; the last one: " and the ReasonLine of the last group of `store` that died; "" if none is
// known.
std::string LastDeath(TrajectoryStore& store);

}  // namespace freshet

#endif  // FRESHET_CONTROLLER_JOBS_PLAN_DEATH_REASON_H_
