#ifndef FRESHET_TESTS_SIMULATION_HISTORY_H_
#define FRESHET_TESTS_SIMULATION_HISTORY_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/mutex.h"
#include "datastore/trajectory.h"
#include "datastore/trajectory_store.h"
#include "weights/manifest.h"

namespace freshet {

// Records the actions of one process as JSON lines in its own file, for a checker that is
// independent of the code. Unless noted, an action is recorded after it happens, so a killed
// process may lack its last record. Thread-safe.
class History {
 public:
  // Writes to FOLDER/ROLE-PID.jsonl. Terminates the process on a write error.
  History(const std::string& folder, const std::string& role);
  // Uses the folder in $FRESHET_SIM_HISTORY. Returns null if the variable is not set.
  static std::unique_ptr<History> FromEnvironment(const std::string& role);

  // Monotonic time in nanoseconds; the clock is shared by all processes of the machine.
  static int64_t Now();
  // Writes `fields`, a JSON object without its braces, and the time as "t".
  void Add(const std::string& fields);

  // Records that an engine has loaded weights into the rollout lane.
  void AddLoad(const WeightManifest& manifest);
  void AddTrain(int64_t step, const std::vector<TrainGroup>& groups);

 private:
  Mutex mu_;
  LineAppender file_ ABSL_GUARDED_BY(mu_);
};

// Checksum over all fields of a response.
std::string ResponseHash(const Response& response);

}  // namespace freshet

#endif  // FRESHET_TESTS_SIMULATION_HISTORY_H_
