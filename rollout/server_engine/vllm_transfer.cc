#include "rollout/server_engine/vllm_transfer.h"

#include <optional>

#include "absl/strings/escaping.h"
#include "base/status_macros.h"
#include "model/dtype.h"
#include "nlohmann/json.hpp"
#include "rollout/server_engine/server_answer.h"

namespace freshet {
namespace {

constexpr int64_t kMostWorkers = 4096;

}  // namespace

std::vector<PackedChunk> PackTensors(const std::vector<ParameterEntry>& tensors,
                                     size_t buffer_bytes) {
  std::vector<PackedChunk> chunks;
  PackedChunk chunk;
  for (const ParameterEntry& tensor : tensors) {
    ++chunk.count;
    chunk.bytes += static_cast<size_t>(tensor.size) * DtypeBytes(Dtype::kBf16);
    if (chunk.bytes <= buffer_bytes) continue;
    chunks.push_back(chunk);
    chunk = {.first = chunk.first + chunk.count};
  }
  if (chunk.count > 0) chunks.push_back(chunk);
  return chunks;
}

runtime::HttpCall InitTransfer(const std::string& id, int workers, size_t buffer_bytes) {
  const nlohmann::json info = {{"nccl_unique_id_b64", absl::Base64Escape(id)},
                               {"rank_offset", 1},
                               {"world_size", workers + 1},
                               {"packed", true},
                               {"packed_buffer_size_bytes", buffer_bytes},
                               {"packed_num_buffers", 2}};
  return PostCall("/init_weight_transfer_engine", nlohmann::json{{"init_info", info}}.dump());
}

runtime::HttpCall UpdateWeights(const std::vector<ParameterEntry>& tensors) {
  std::vector<std::string> names;
  std::vector<std::vector<int64_t>> shapes;
  for (const ParameterEntry& tensor : tensors) {
    names.push_back(tensor.name);
    shapes.push_back(tensor.shape);
  }
  const nlohmann::json info = {
      {"names", names},
      {"dtype_names", std::vector<std::string>(tensors.size(), "bfloat16")},
      {"shapes", shapes}};
  return PostCall("/update_weights", nlohmann::json{{"update_info", info}}.dump());
}

ControlStep CheckNotPaused() {
  const auto check = [](const std::string& body) -> absl::Status {
    FRESHET_ASSIGN_OR_RETURN(const nlohmann::json json, ParseAnswer(body, "pause state"));
    const nlohmann::json& paused = AnswerMember(json, "is_paused");
    if (paused == false) return absl::OkStatus();
    return WrongAnswer("is_paused", paused, "false: a former process has left it while loading");
  };
  return {.call = GetCall("/is_paused"), .check = check};
}

absl::StatusOr<int> ParseWorldSize(const std::string& body) {
  FRESHET_ASSIGN_OR_RETURN(const nlohmann::json json, ParseAnswer(body, "world size"));
  const nlohmann::json& size = AnswerMember(json, "world_size");
  const std::optional<int64_t> workers = AnswerCount(size, kMostWorkers);
  if (workers.value_or(0) < 1) return WrongAnswer("world_size", size, "from 1 to 4096");
  return static_cast<int>(*workers);
}

absl::Status CheckTransferAnswer(const std::string& body) {
  FRESHET_ASSIGN_OR_RETURN(const nlohmann::json json, ParseAnswer(body, "answer"));
  const nlohmann::json& message = AnswerMember(json, "message");
  return message.is_string() ? absl::OkStatus() : WrongAnswer("message", message, "a text");
}

}  // namespace freshet
