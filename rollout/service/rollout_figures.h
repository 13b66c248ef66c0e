#ifndef FRESHET_ROLLOUT_SERVICE_ROLLOUT_FIGURES_H_
#define FRESHET_ROLLOUT_SERVICE_ROLLOUT_FIGURES_H_

#include <cstdint>

#include "rollout/rollout_worker.h"
#include "services/metrics/work_board.h"

namespace freshet {

// What a rollout's work says of itself, for metrics.
struct RolloutFigures {
  RolloutCounters counters;
  int64_t version = -1;  // of the weights that it generates with; -1: none
  int64_t max_unsent_samples = 0;

  void Add(const RolloutFigures& other);
  void Rest();
};

using RolloutBoard = metrics::WorkBoard<RolloutFigures>;

}  // namespace freshet

#endif  // FRESHET_ROLLOUT_SERVICE_ROLLOUT_FIGURES_H_
