#ifndef FRESHET_TESTS_DATASTORE_STALENESS_SIMULATION_H_
#define FRESHET_TESTS_DATASTORE_STALENESS_SIMULATION_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "datastore/trajectory_store.h"

namespace freshet {

// A random history of one job: engines that lag behind the trainer and 10 % stragglers. `faults`
// adds workers that vanish (their leases expire) or hand work back, prompts that always fail,
// failing scorers, filtered groups, and a trainer that dies and redoes its steps.
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
  std::string stuck;  // Explain() text if the job made no progress
  std::vector<LedgerRow> ledger;
  StoreStats stats;
  std::map<int64_t, int64_t> admitted;  // groups leased, by engine version
  int64_t trainer_deaths = 0;
  int64_t refused_zombies = 0;      // late puts of vanished workers that were refused
  std::vector<std::string> errors;  // unexpected call failures
};

// Drives an InMemoryTrajectoryStore with a FakeClock. Deterministic for given options.
SimulationResult SimulateJob(const SimulationOptions& options);

// Checks a ledger's rows: each step trains exactly B whole groups, no uid is trained twice, no
// loss-bearing token exceeds the bound, and redo rows match the original step. Returns all
// violations.
std::vector<std::string> LedgerViolations(const SimulationOptions& options,
                                          const std::vector<LedgerRow>& ledger);

}  // namespace freshet

#endif  // FRESHET_TESTS_DATASTORE_STALENESS_SIMULATION_H_
