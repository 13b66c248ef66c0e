#ifndef FRESHET_TRAINER_RANKS_RANK_FOLLOWER_H_
#define FRESHET_TRAINER_RANKS_RANK_FOLLOWER_H_

#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/message_socket.h"
#include "collective/communicator_backend.h"
#include "datastore/trajectory_store.h"
#include "freshet/trainer/v1/rank.pb.h"
#include "trainer/learner/policy_learner.h"

namespace freshet {

// The parts of a rank that depend on where it runs.
struct RankParts {
  std::function<absl::StatusOr<std::unique_ptr<PolicyLearner>>(const trainer::v1::RankStart&)>
      make_learner;  // without weights
  // One of those that rank 0 names, if it names any.
  OpenCommunicatorBackend open_backend;
  // Of the job that rank 0 names, if it names one.
  StoreOpener open_store;
  // Called when rank 0 is gone, on another thread; may end the process.
  std::function<void()> on_orphaned = [] {};
};

// Runs one of ranks 1 .. of a group until rank 0 closes `socket`. Returns OK then; otherwise the
// error, which it also reports to rank 0.
absl::Status RunRank(MessageSocket& socket, const RankParts& parts);

}  // namespace freshet

#endif  // FRESHET_TRAINER_RANKS_RANK_FOLLOWER_H_
