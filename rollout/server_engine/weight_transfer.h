#ifndef FRESHET_ROLLOUT_SERVER_ENGINE_WEIGHT_TRANSFER_H_
#define FRESHET_ROLLOUT_SERVER_ENGINE_WEIGHT_TRANSFER_H_

#include <cstddef>
#include <memory>
#include <stop_token>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "collective/communicator_backend.h"
#include "model/model_config.h"
#include "model/model_files.h"
#include "model/parameter_layout.h"
#include "rollout/server_engine/server_protocol.h"
#include "rollout/server_engine/vllm_transfer.h"

namespace freshet {

// Bytes above which a broadcast ends. Host memory and GPU memory of rank 0 hold one broadcast.
constexpr size_t kTransferBufferBytes = size_t{256} << 20;

// Broadcasts weights to the workers of a running vLLM server, which has been started with
// --weight-transfer-config '{"backend":"nccl"}'. This process is rank 0 of the group. The group
// lasts until an error or Close. Tested with a fake NCCL and with the HTTP routes of a real server,
// not on GPUs. Confined to one thread.
class WeightTransfer {
 public:
  // Makes the calls of the steps in order; see ControlStep.
  using RunSteps = absl::FunctionRef<absl::Status(std::vector<ControlStep>)>;

  // `backend` is that of NCCL.
  WeightTransfer(std::shared_ptr<CommunicatorBackend> backend, const ModelConfig& model,
                 size_t buffer_bytes = kTransferBufferBytes);

  // Replaces the server's weights by those of the directory, between a pause and a resume, and sets
  // the version when the server has confirmed all of them. Returns the errors of `run` and of
  // Communicator. After an error the group is closed, and the server must be started anew.
  absl::Status Load(const StoredWeights& weights, bool recompute_kv, RunSteps run);

  // Ends the group, as when the server is replaced. The next Load makes another one.
  void Close() { group_ = nullptr; }

 private:
  absl::Status TryLoad(const StoredWeights& weights, bool recompute_kv, RunSteps run);
  absl::Status MakeGroup(RunSteps run);
  absl::Status Join(const std::string& id, int workers, absl::Duration timeout,
                    std::stop_token stop);
  absl::Status Send(const ModelFiles& files, absl::Duration timeout, const std::stop_token& stop);

  const std::shared_ptr<CommunicatorBackend> backend_;
  const std::vector<ParameterEntry> tensors_;
  const size_t buffer_bytes_;
  const std::vector<PackedChunk> chunks_;
  std::unique_ptr<Communicator> group_;
};

}  // namespace freshet

#endif  // FRESHET_ROLLOUT_SERVER_ENGINE_WEIGHT_TRANSFER_H_
