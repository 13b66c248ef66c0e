#ifndef FRESHET_ROLLOUT_SERVICE_ENGINE_CHOICE_H_
#define FRESHET_ROLLOUT_SERVICE_ENGINE_CHOICE_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/command_line.h"
#include "collective/communicator_backend.h"
#include "model/model_config.h"
#include "rollout/service/rollout_work.h"

namespace freshet {

// The engine of a rollout process, and the inference server that it generates on.
struct EngineFlags {
  std::string kind = "native";
  std::string address;             // HOST:PORT of the server
  std::string folder;              // shared with the server
  std::string weights = "folder";  // how they get into a running server: folder or nccl
  double time_scale = 1.0;
};

// How long an inference server may load weights of this model. One that hangs while it loads is
// not noticed earlier.
absl::Duration LoadTimeout(const ModelConfig& model);

// Adds --engine, --engine-address, --engine-dir and --engine-weights, and their check. `flags` must
// outlive the parsing.
void AddEngineFlags(const Command& app, EngineFlags& flags);

// What --engine-weights nccl needs; null with other flags. UNIMPLEMENTED: this process lacks NCCL
// or a GPU.
absl::StatusOr<std::shared_ptr<CommunicatorBackend>> OpenEngineTransfer(
    const EngineFlags& flags, const OpenCommunicatorBackend& open);

// The factory of engines of this kind. `transfer` is of OpenEngineTransfer. `clock` must outlive
// its engines. Errors of the factory: FAILED_PRECONDITION: the folder cannot be used.
EngineFactory ChooseEngine(const EngineFlags& flags, EngineFactory make_native,
                           std::shared_ptr<CommunicatorBackend> transfer, const Clock& clock);

}  // namespace freshet

#endif  // FRESHET_ROLLOUT_SERVICE_ENGINE_CHOICE_H_
