#ifndef FRESHET_CONTROLLER_JOBS_DEATH_REASON_H_
#define FRESHET_CONTROLLER_JOBS_DEATH_REASON_H_

#include <string>

#include "absl/status/statusor.h"
#include "datastore/trajectory_store.h"

namespace freshet {

// Why the last group of `store` died: "score_failed: 3 times: infra_error: ...", with the error of
// its last attempt; one line, about 300 bytes at most. "" when no dead group is among the newest
// rows of the ledger. `stats` are the store's. Errors of the store.
absl::StatusOr<std::string> LastDeath(TrajectoryStore& store, const StoreStats& stats);

}  // namespace freshet

#endif  // FRESHET_CONTROLLER_JOBS_DEATH_REASON_H_
