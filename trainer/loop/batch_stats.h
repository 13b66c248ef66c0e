#ifndef FRESHET_TRAINER_LOOP_BATCH_STATS_H_
#define FRESHET_TRAINER_LOOP_BATCH_STATS_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "datastore/trajectory_store.h"

namespace freshet {

// Per-sample values of a trained batch, for histograms. One entry per sample; those for which the
// policy was not asked have a reward only.
struct BatchStats {
  std::vector<double> rewards;
  std::vector<double> completion_tokens;
  std::vector<double> version_spans;  // runs of tokens from one policy version
  // Groups by how many of their samples reached `success_rewards`.
  int64_t solved_all = 0;
  int64_t solved_some = 0;
  int64_t solved_none = 0;
};

// `success_rewards`: minimum reward of a solved sample, by task (TaskNames); has "", for
// other tasks. Pure.
BatchStats SummarizeBatch(const std::vector<TrainGroup>& groups,
                          const std::map<std::string, double>& success_rewards);

}  // namespace freshet

#endif  // FRESHET_TRAINER_LOOP_BATCH_STATS_H_
