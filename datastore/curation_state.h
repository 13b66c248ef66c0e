#ifndef FRESHET_DATASTORE_CURATION_STATE_H_
#define FRESHET_DATASTORE_CURATION_STATE_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "datastore/adaptive_rollouts.h"
#include "datastore/trajectory.h"

namespace freshet {

// A rare success that is kept for a prompt (ReplayOptions).
struct PooledSuccess {
  std::string uid;
  std::shared_ptr<const Response> response;
  std::shared_ptr<const Score> score;
  int64_t oldest = 0;  // version of its oldest loss-bearing token
};

// What a store remembers besides its groups. The Redis store keeps it itself; a store in memory
// gives it to the next process of the run.
struct CurationState {
  std::map<std::string, PooledSuccess> successes;  // by prompt key
  int64_t left_out = 0;                            // further successes, for which there was no room
  // Histories of adaptive rollouts: by prompt key, and by task.
  std::map<std::string, RolloutHistory> rows;
  std::map<std::string, RolloutHistory> tasks;
  double min_reward = 0;  // AdaptiveOptions::min_reward of the histories
};

}  // namespace freshet

#endif  // FRESHET_DATASTORE_CURATION_STATE_H_
