#ifndef FRESHET_TESTS_DATASTORE_NAIVE_GATE_SIMULATION_H_
#define FRESHET_TESTS_DATASTORE_NAIVE_GATE_SIMULATION_H_

#include <cstdint>

#include "tests/datastore/staleness_simulation.h"

namespace freshet {

struct NaiveGateResult {
  bool finished = false;
  int64_t trained = 0;  // groups
  int64_t dropped = 0;  // groups that exceeded the bound when a batch was formed
};

// Simulates a common simpler admission rule under SimulateJob's fault-free histories (lagging
// engines and stragglers). It admits while accepted + running < (eta + V + 1) * B, regardless of
// the engine's version. Batches take groups in completion order. A group beyond the bound is
// dropped and no longer counts as accepted.
NaiveGateResult SimulateNaiveGate(const SimulationOptions& options);

}  // namespace freshet

#endif  // FRESHET_TESTS_DATASTORE_NAIVE_GATE_SIMULATION_H_
