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

// What one process did, as JSON lines in a file of its own: evidence for a checker that knows
// nothing of the code. A row is written after the fact unless its event says otherwise, so a killed
// process may lack its last one. Thread-safe.
class History {
 public:
  // FOLDER/ROLE-PID.jsonl. Ends the process when it cannot be written: without evidence there is no
  // test.
  History(const std::string& folder, const std::string& role);
  // In the folder that the environment variable FRESHET_SIM_HISTORY names; null without it.
  static std::unique_ptr<History> FromEnvironment(const std::string& role);

  // Nanoseconds of a clock that all processes of this machine share.
  static int64_t Now();
  // `fields`: a JSON object without its braces. Adds "t", the time.
  void Add(const std::string& fields);

  // An engine has loaded weights for rollouts.
  void AddLoad(const WeightManifest& manifest);
  // A step is about to be trained on these samples.
  void AddTrain(int64_t step, const std::vector<TrainGroup>& groups);

 private:
  Mutex mu_;
  LineAppender file_ ABSL_GUARDED_BY(mu_);
};

// Checksum of everything that a response holds.
std::string ResponseHash(const Response& response);

}  // namespace freshet

#endif  // FRESHET_TESTS_SIMULATION_HISTORY_H_
