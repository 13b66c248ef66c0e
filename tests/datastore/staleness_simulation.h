#ifndef FRESHET_TESTS_DATASTORE_STALENESS_SIMULATION_H_
#define FRESHET_TESTS_DATASTORE_STALENESS_SIMULATION_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "datastore/trajectory_store.h"

namespace freshet {

// A random history of one job: engines that lag behind the trainer, 10 % stragglers, and, with
// `faults`, workers that vanish (their leases expire) or hand work back, prompts that no worker can
// generate, failing scorers, filtered groups and a trainer that dies and redoes its steps.
struct SimulationOptions {
  int64_t eta = 0;
  Disposition disposition = Disposition::kWait;
  int64_t groups_per_step = 3;
  int32_t group_size = 2;
  int64_t steps = 25;
  int num_engines = 3;
  bool faults = true;
  uint64_t seed = 0;
};

struct SimulationResult {
  bool finished = false;
  std::string stuck;  // what Explain() said when the job stood still
  std::vector<LedgerRow> ledger;
  StoreStats stats;
  std::map<int64_t, int64_t> admitted;  // groups leased, by the engine's version
  int64_t trainer_deaths = 0;
  int64_t refused_zombies = 0;      // late puts of vanished workers that the store refused
  std::vector<std::string> errors;  // calls that failed although they should not
};

// Drives an InMemoryTrajectoryStore with a FakeClock; the same options give the same result.
SimulationResult SimulateJob(const SimulationOptions& options);

// Every broken promise in a ledger, computed from its rows alone: each step trained by exactly B
// whole groups, no uid twice, no loss-bearing token beyond the bound, redo rows that repeat their
// step.
std::vector<std::string> LedgerViolations(const SimulationOptions& options,
                                          const std::vector<LedgerRow>& ledger);

}  // namespace freshet

#endif  // FRESHET_TESTS_DATASTORE_STALENESS_SIMULATION_H_
