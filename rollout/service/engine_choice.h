#ifndef FRESHET_ROLLOUT_SERVICE_ENGINE_CHOICE_H_
#define FRESHET_ROLLOUT_SERVICE_ENGINE_CHOICE_H_

#include <string>

#include "absl/time/time.h"
#include "base/clock.h"
#include "base/command_line.h"
#include "model/model_config.h"
#include "rollout/service/rollout_work.h"

namespace freshet {

// The engine of a rollout process, and the inference server that it generates on.
struct EngineFlags {
  std::string kind = "native";
  std::string address;  // HOST:PORT of the server
  std::string folder;   // shared with the server
  double time_scale = 1.0;
};

// How long an inference server may load weights of this model. One that hangs while it loads is
// not noticed earlier.
absl::Duration LoadTimeout(const ModelConfig& model);

// Adds --engine, --engine-address and --engine-dir, and their check. `flags` must outlive the
// parsing.
void AddEngineFlags(const Command& app, EngineFlags& flags);

// The factory of engines of this kind. `clock` must outlive its engines. Errors of the factory:
// FAILED_PRECONDITION: the folder cannot be used.
EngineFactory ChooseEngine(const EngineFlags& flags, EngineFactory make_native, const Clock& clock);

}  // namespace freshet

#endif  // FRESHET_ROLLOUT_SERVICE_ENGINE_CHOICE_H_
