#ifndef FRESHET_BENCH_TRAINER_FIXED_BATCH_H_
#define FRESHET_BENCH_TRAINER_FIXED_BATCH_H_

#include <cstdint>
#include <vector>

#include "datastore/trajectory_store.h"
#include "nlohmann/json.hpp"

namespace freshet {

struct BatchShape {
  int prompts = 8;
  int samples = 8;  // of each prompt
  int prompt_tokens = 128;
  // Of responses: log-normal with median 256 and sigma 0.7, within these bounds.
  int shortest = 64;
  int longest = 1024;
  int vocab_size = 8192;
};

// A GRPO batch of random tokens, the same in every process. Rewards are 0 or 1, behavior log-probs
// those of a uniform policy.
std::vector<TrainGroup> FixedBatch(const BatchShape& shape);

// The same samples, each in a group of its own, so that no prompt is shared.
std::vector<TrainGroup> Separated(const std::vector<TrainGroup>& groups);

// All responses get the length of the longest. Costs what a padded batch costs, as TRL and verl
// make it.
std::vector<TrainGroup> Padded(const std::vector<TrainGroup>& groups);

// {"prompt", "response", "reward"} of every sample, for the peers.
nlohmann::json ToJson(const std::vector<TrainGroup>& groups);

}  // namespace freshet

#endif  // FRESHET_BENCH_TRAINER_FIXED_BATCH_H_
