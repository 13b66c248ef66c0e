#ifndef FRESHET_ROLLOUT_SERVER_ENGINE_VLLM_TRANSFER_H_
#define FRESHET_ROLLOUT_SERVER_ENGINE_VLLM_TRANSFER_H_

#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "model/parameter_layout.h"
#include "rollout/server_engine/server_protocol.h"
#include "services/runtime/http_calls.h"

// How the workers of a vLLM 0.32 server get new weights from rank 0 of an NCCL group (its transfer
// backend "nccl"): what to send, and what the answers mean. All tensors are bf16, in the order of
// the arena, which is by layer. Pure.

namespace freshet {

// Tensors [first, first + count), which are one broadcast of `bytes` bytes: each tensor's values,
// without gaps.
struct PackedChunk {
  size_t first = 0;
  size_t count = 0;
  size_t bytes = 0;
};

// Divides tensors as the workers do: a chunk ends with the tensor that makes it larger than
// `buffer_bytes`.
std::vector<PackedChunk> PackTensors(const std::vector<ParameterEntry>& tensors,
                                     size_t buffer_bytes);

// The call with which `workers` workers join a group as ranks 1 to `workers`. `id` is NCCL's. It is
// answered when they have joined and have taken part in an all-reduce of one float.
runtime::HttpCall InitTransfer(const std::string& id, int workers, size_t buffer_bytes);
// The call during which the workers receive these tensors.
runtime::HttpCall UpdateWeights(const std::vector<ParameterEntry>& tensors);

// Fails if the server is paused: a former process may have left it with parts of a version.
ControlStep CheckNotPaused();
// What GET /get_world_size says: the number of workers, from 1 to 4,096.
absl::StatusOr<int> ParseWorldSize(const std::string& body);
// Checks that the answer to a call of the transfer is {"message": TEXT}.
absl::Status CheckTransferAnswer(const std::string& body);

}  // namespace freshet

#endif  // FRESHET_ROLLOUT_SERVER_ENGINE_VLLM_TRANSFER_H_
