#ifndef FRESHET_ROLLOUT_SERVER_ENGINE_WEIGHT_TRANSFER_H_
#define FRESHET_ROLLOUT_SERVER_ENGINE_WEIGHT_TRANSFER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <stop_token>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "collective/communicator_backend.h"
#include "model/model_config.h"
#include "model/model_files.h"
#include "model/parameter_layout.h"
#include "rollout/server_engine/server_protocol.h"
#include "rollout/server_engine/vllm_transfer.h"

namespace freshet {

struct WeightTransferOptions {
  // A broadcast ends with the tensor that makes it larger than this. Rank 0 holds one broadcast in
  // host memory and one in GPU memory.
  size_t buffer_bytes = size_t{256} << 20;
  // How long no transfer is tried after an error, doubled with each further one in a row.
  absl::Duration first_delay = absl::Minutes(10);
  absl::Duration max_delay = absl::Hours(6);
};

// Broadcasts weights to the workers of a running vLLM server, which has been started with
// --weight-transfer-config '{"backend":"nccl"}'. This process is rank 0 of the group. The group
// lasts until an error or Close. Tested with a fake NCCL and with the HTTP routes of a real server,
// not on GPUs. Confined to one thread.
class WeightTransfer {
 public:
  // Makes the calls of the steps in order; see ControlStep.
  using RunSteps = absl::FunctionRef<absl::Status(std::vector<ControlStep>)>;

  // `backend` is that of NCCL. `clock` must outlive it.
  WeightTransfer(std::shared_ptr<CommunicatorBackend> backend, const ModelConfig& model,
                 const Clock& clock, const WeightTransferOptions& options = {});

  // False for a while after an error of Load. Meanwhile the server reads weights from the folder.
  bool Usable() const { return clock_.Now() >= retry_at_; }

  // Replaces the server's weights by those of the directory, between a pause and a resume, and sets
  // the version when the server has confirmed all of them. Returns the errors of `run` and of
  // Communicator; INTERNAL: a former process has left the server paused. After an error the group
  // is closed, and the server must be started anew.
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
  const Clock& clock_;
  const WeightTransferOptions options_;
  const std::vector<PackedChunk> chunks_;
  std::unique_ptr<Communicator> group_;
  int64_t failures_ = 0;  // in a row
  absl::Time retry_at_ = absl::InfinitePast();
};

}  // namespace freshet

#endif  // FRESHET_ROLLOUT_SERVER_ENGINE_WEIGHT_TRANSFER_H_
