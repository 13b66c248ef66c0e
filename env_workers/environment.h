#ifndef FRESHET_ENV_WORKERS_ENVIRONMENT_H_
#define FRESHET_ENV_WORKERS_ENVIRONMENT_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace freshet {

// Text by name: the row's fields and the job's `environment.options`, where a row's field wins.
// An environment reads the names that it knows and leaves the others alone.
using EnvironmentOptions = std::map<std::string, std::string>;

// What an environment answers, to a reset and to a step.
struct EnvironmentReply {
  std::string observation;                  // text for the policy; may be empty
  double reward = 0;                        // of this step, finite; 0 for a reset
  bool terminated = false;                  // the episode reached an end of its own
  bool truncated = false;                   // the episode was cut off by a limit of turns
  std::map<std::string, std::string> info;  // for people and logs; the policy never sees it
};

// One episode at a time, shaped like Gymnasium's environments. Pure computation that never blocks:
// no I/O, no clock, bounded time and memory whatever the action holds. The same seed, options and
// actions give the same replies.
// Confined to one thread at a time.
class Environment {
 public:
  virtual ~Environment() = default;
  // Begins a new episode, whatever became of the former one. INVALID_ARGUMENT naming the option,
  // its value and its bound.
  virtual absl::StatusOr<EnvironmentReply> Reset(uint64_t seed,
                                                 const EnvironmentOptions& options) = 0;
  // Answers what the policy wrote in one turn. Called only between Reset and an end.
  virtual absl::StatusOr<EnvironmentReply> Step(std::string_view action) = 0;
};

// A kind of environment that can be asked for by name.
struct EnvironmentType {
  std::string name;
  std::string description;
  std::vector<std::string> options;  // names that its Reset reads
  std::function<std::unique_ptr<Environment>()> make;
  EnvironmentOptions example_row = {};  // fields of a row, where it cannot do without
};

// Environments by name. Thread-compatible: const methods may run concurrently.
class EnvironmentRegistry {
 public:
  // ALREADY_EXISTS: the name is taken. INVALID_ARGUMENT: an empty name, or nothing to make one by.
  absl::Status Add(EnvironmentType type);

  // INVALID_ARGUMENT for an unknown name; the message lists the known ones.
  absl::StatusOr<std::unique_ptr<Environment>> Make(const std::string& name) const;
  // INVALID_ARGUMENT unless the environment is known, knows every option by name, and takes their
  // values.
  absl::Status CheckOptions(const std::string& name, const EnvironmentOptions& options) const;
  const std::map<std::string, EnvironmentType>& types() const { return types_; }

 private:
  absl::StatusOr<const EnvironmentType*> Find(const std::string& name) const;

  std::map<std::string, EnvironmentType> types_;
};

// guess_number and calculator. Never destroyed.
const EnvironmentRegistry& BuiltinEnvironments();

}  // namespace freshet

#endif  // FRESHET_ENV_WORKERS_ENVIRONMENT_H_
