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

// Simulates a job whose pool follows the controller's decisions: engines that lease groups through
// the real admission gate, a trainer, instant scoring, and an autoscaler that applies the decision
// every 15 s. All times are simulated seconds.
struct PoolSimulationOptions {
  int64_t eta = 4;
  int64_t groups_per_step = 8;
  int32_t group_size = 2;
  double step_seconds = 2;  // duration of training a step
  int64_t slots = 4;        // concurrent groups per engine
  // Seconds to generate a sample that starts at `now`.
  std::function<double(double now, Dice& dice)> sample_seconds = [](double, Dice& dice) {
    return dice.Uniform(2, 4);
  };
  double start_seconds = 20;  // from requesting an engine until it is ready
  PoolBounds bounds{1, 16};
  int32_t engines = 1;  // initial number
  double seconds = 3600;
  uint64_t seed = 1;
  double dies_every = 0;            // period of engine deaths, each followed by a restart; 0: never
  double trainer_dies_at = 0;       // 0: never
  double trainer_away_seconds = 0;  // until it restarts
  // If set, replaces the decision: returns the wanted engines at `now`.
  std::function<int32_t(double now, Dice& dice)> actuate = nullptr;
};

struct PoolSimulationResult {
  // Each change of the wanted number with its reason, including the initial one.
  struct Change {
    double time = 0;
    int32_t wanted = 0;
    ScalingReason reason = ScalingReason::kMeasuring;
  };
  std::vector<Change> changes;
  ScalingReason last_reason = ScalingReason::kMeasuring;
  std::string last_text;
  int64_t steps = 0;
  double late_wait = 0;  // fraction of the last quarter that the trainer waited
  double late_busy = 0;  // mean busy fraction of engines in the last quarter
  int64_t late_steps = 0;
  std::vector<std::string> violations;  // ledger violations and failed calls

  int32_t wanted() const { return changes.back().wanted; }
  // Time from which the wanted number stayed within one engine of the final number.
  double settled() const;
  // Times at which the number switched between growing and shrinking.
  std::vector<double> Turns() const;
  // Maximum number of turns in any window of `seconds`.
  int64_t MostTurnsWithin(double seconds) const;
  int32_t Most() const;
};

// Deterministic for given options.
PoolSimulationResult SimulatePool(const PoolSimulationOptions& options);

}  // namespace freshet

#endif  // FRESHET_TESTS_CONTROLLER_AUTOSCALE_POOL_SIMULATION_H_
