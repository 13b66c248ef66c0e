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

// Values by name: the row's fields and the job's `environment.options`; a row's field wins. An
// environment ignores names that it does not know.
using EnvironmentOptions = std::map<std::string, std::string>;

// Answer of an environment to a reset or step.
struct EnvironmentReply {
  std::string observation;                  // text for the policy; may be empty
  double reward = 0;                        // for this step, finite; 0 for a reset
  bool terminated = false;                  // the episode ended by itself
  bool truncated = false;                   // the episode was cut off by a turn limit
  std::map<std::string, std::string> info;  // for humans and logs; not shown to the policy
  bool invalid = false;                     // the action was invalid; the observation says so
};

// One episode at a time, modeled on Gymnasium's environments. Pure computation that never blocks:
// no I/O, no clock, bounded time and memory for any action. Deterministic in seed, options and
// actions. Not thread-safe.
class Environment {
 public:
  virtual ~Environment() = default;
  // Begins a new episode, ending the previous one. INVALID_ARGUMENT naming the option, its value
  // and its bound.
  virtual absl::StatusOr<EnvironmentReply> Reset(uint64_t seed,
                                                 const EnvironmentOptions& options) = 0;
  // Answers the policy's text of one turn. Call it only between Reset and the end of the episode.
  virtual absl::StatusOr<EnvironmentReply> Step(std::string_view action) = 0;
};

// A kind of environment, requested by name.
struct EnvironmentType {
  std::string name;
  std::string description;
  std::vector<std::string> options;  // names that its Reset reads
  std::function<std::unique_ptr<Environment>()> make;
  EnvironmentOptions example_row = {};  // example values of required row fields
};

// Environments by name. Thread-compatible: const methods may run concurrently.
class EnvironmentRegistry {
 public:
  // ALREADY_EXISTS: the name is taken. INVALID_ARGUMENT: empty name or no factory.
  absl::Status Add(EnvironmentType type);

  // INVALID_ARGUMENT for an unknown name; the message lists the known ones.
  absl::StatusOr<std::unique_ptr<Environment>> Make(const std::string& name) const;
  // INVALID_ARGUMENT if the environment is unknown, or an option's name or value is invalid.
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
