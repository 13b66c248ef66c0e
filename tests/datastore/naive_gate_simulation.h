#ifndef FRESHET_TESTS_DATASTORE_NAIVE_GATE_SIMULATION_H_
#define FRESHET_TESTS_DATASTORE_NAIVE_GATE_SIMULATION_H_

#include <cstdint>

#include "tests/datastore/staleness_simulation.h"

namespace freshet {

struct NaiveGateResult {
  bool finished = false;
  int64_t trained = 0;  // groups
  int64_t dropped = 0;  // groups found beyond the bound when a batch was made
};

// The widespread simpler rule under the histories of SimulateJob without faults (lagging engines
// and stragglers only): admit while accepted + running < (eta + V + 1) * B, whatever version the
// engine holds; batches take the groups that finished first; a group beyond the bound is dropped
// and no longer counts as accepted, so that the gate opens for another one.
NaiveGateResult SimulateNaiveGate(const SimulationOptions& options);

}  // namespace freshet

#endif  // FRESHET_TESTS_DATASTORE_NAIVE_GATE_SIMULATION_H_
