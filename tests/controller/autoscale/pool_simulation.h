#ifndef FRESHET_TESTS_CONTROLLER_AUTOSCALE_POOL_SIMULATION_H_
#define FRESHET_TESTS_CONTROLLER_AUTOSCALE_POOL_SIMULATION_H_

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "controller/autoscale/autoscaler.h"
#include "datastore/staleness_policy.h"
#include "tests/datastore/event_queue.h"

namespace freshet {

// A job whose pool follows the controller's decision, in simulated time: engines that lease groups
// through the real admission gate, a trainer, scores at once, and an autoscaler that does every 15
// s what the decision says. Seconds are simulated ones.
struct PoolSimulationOptions {
  int64_t eta = 4;
  int64_t groups_per_step = 8;
  int32_t group_size = 2;
  double step_seconds = 2;  // of training
  int64_t slots = 4;        // groups that an engine works on at a time
  // Seconds that a sample takes, begun at `now`.
  std::function<double(double now, Dice& dice)> sample_seconds = [](double, Dice& dice) {
    return dice.Uniform(2, 4);
  };
  double start_seconds = 20;  // from the wish for an engine to its readiness
  PoolBounds bounds{1, 16};
  int32_t engines = 1;  // at the beginning
  double seconds = 3600;
  uint64_t seed = 1;
  double dies_every = 0;            // an engine vanishes, and is started again; 0: never
  double trainer_dies_at = 0;       // 0: never
  double trainer_away_seconds = 0;  // until it is back
  // In place of the decision, if set: engines wanted at `now`.
  std::function<int32_t(double now, Dice& dice)> actuate = nullptr;
};

struct PoolSimulationResult {
  // The wanted number when it changed, the first one included, and why.
  struct Change {
    double time = 0;
    int32_t wanted = 0;
    ScalingReason reason = ScalingReason::kMeasuring;
  };
  std::vector<Change> changes;
  ScalingReason last_reason = ScalingReason::kMeasuring;
  std::string last_text;
  int64_t steps = 0;
  double late_wait = 0;  // share of the last quarter in which the trainer waited
  double late_busy = 0;  // share of the last quarter in which the mean engine worked
  int64_t late_steps = 0;
  std::vector<std::string> violations;  // of the ledger, and calls that failed

  int32_t wanted() const { return changes.back().wanted; }
  // From when on the number was the last one, but for one engine.
  double settled() const;
  // Times at which the number turned from growing to shrinking or back.
  std::vector<double> Turns() const;
  // The most turns within `seconds`.
  int64_t MostTurnsWithin(double seconds) const;
  int32_t Most() const;
};

// The same options give the same result.
PoolSimulationResult SimulatePool(const PoolSimulationOptions& options);

}  // namespace freshet

#endif  // FRESHET_TESTS_CONTROLLER_AUTOSCALE_POOL_SIMULATION_H_
