#include "local/model_commands.h"

#include <algorithm>
#include <cstdio>
#include <memory>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/file.h"
#include "base/status_macros.h"
#include "base/str_cat.h"
#include "local/loaded_model.h"
#include "model/kv_cache_size.h"
#include "nlohmann/json.hpp"
#include "trainer/learner/policy_learner.h"

namespace freshet {
namespace {

constexpr uint64_t kMaxIdsBytes = 256 << 20;

// The id lists of a file, one JSON array per line.
absl::StatusOr<std::vector<std::vector<int32_t>>> ReadIds(const std::string& path,
                                                          const ModelConfig& model) {
  FRESHET_ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kMaxIdsBytes));
  std::vector<std::vector<int32_t>> lists;
  size_t begin = 0;
  while (begin < text.size()) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    const int64_t line = static_cast<int64_t>(lists.size()) + 1;
    const nlohmann::json json =
        nlohmann::json::parse(text.begin() + static_cast<ptrdiff_t>(begin),
                              text.begin() + static_cast<ptrdiff_t>(end), nullptr, false);
    if (!json.is_array() || json.empty()) {
      return InvalidArgument(path, ":", line, ": not a JSON array of at least one token id");
    }
    std::vector<int32_t>& ids = lists.emplace_back();
    for (const nlohmann::json& id : json) {
      if (!id.is_number_integer() || id.get<int64_t>() < 0 ||
          id.get<int64_t>() >= model.vocab_size) {
        return InvalidArgument(path, ":", line, ": ", id.dump(), " is not a token id below ",
                               model.vocab_size);
      }
      ids.push_back(id.get<int32_t>());
    }
    if (static_cast<int64_t>(ids.size()) > model.max_position_embeddings) {
      return InvalidArgument(path, ":", line, ": ", ids.size(), " tokens, the model's context is ",
                             model.max_position_embeddings);
    }
    begin = end + 1;
  }
  return lists;
}

absl::StatusOr<std::unique_ptr<NativeEngine>> MakeEngine(const ModelFiles& files,
                                                         const ComputeOptions& compute) {
  NativeEngineOptions options = CommandEngineOptions(compute);
  options.max_sequences = 64;
  if (compute.kv_cache_bytes == 0) {
    // At least one sequence that fills the context.
    const ModelConfig& config = files.config();
    const int64_t blocks = 1 + KvBlocksOfGroup(config.max_position_embeddings, 1, 0);
    options.cache_bytes =
        std::max(options.cache_bytes, blocks * KvBlockBytes(config, options.bf16));
  }
  return MakeModelEngine(files, options);
}

absl::StatusOr<std::unique_ptr<PolicyLearner>> MakeLearner(std::shared_ptr<const ModelFiles> files,
                                                           const std::string& device, bool bf16) {
  PolicyLearnerOptions options;
  options.model = files->config();
  options.device = device;
  options.bf16 = bf16;
  FRESHET_ASSIGN_OR_RETURN(auto learner,
                           PolicyLearner::Create(std::move(options), SystemClock::Get()));
  FRESHET_RETURN_IF_ERROR(learner->LoadModel(std::move(files)));
  return learner;
}

void PrintLine(const nlohmann::ordered_json& json) { std::printf("%s\n", json.dump().c_str()); }

}  // namespace

absl::Status RunScore(const ScoreCommand& command) {
  FRESHET_ASSIGN_OR_RETURN(std::shared_ptr<const ModelFiles> files,
                           OpenModelDirectory(command.model));
  FRESHET_ASSIGN_OR_RETURN(const auto lists, ReadIds(command.ids_file, files->config()));
  std::unique_ptr<PolicyLearner> learner;
  std::unique_ptr<NativeEngine> engine;
  if (command.engine == "trainer") {
    const std::string& dtype = command.compute.dtype;
    if (dtype == "int8") return InvalidArgument("--engine trainer has no --dtype int8");
    FRESHET_ASSIGN_OR_RETURN(learner, MakeLearner(files, command.compute.device, dtype == "bf16"));
  } else {
    FRESHET_ASSIGN_OR_RETURN(engine, MakeEngine(*files, command.compute));
  }
  for (const std::vector<int32_t>& ids : lists) {
    std::vector<float> logprobs;
    if (learner != nullptr) {
      FRESHET_ASSIGN_OR_RETURN(const auto scores, learner->Score({ids}));
      logprobs = scores.front();
    } else {
      FRESHET_ASSIGN_OR_RETURN(logprobs, engine->Score(ids, command.engine == "decode"));
    }
    PrintLine({{"logprobs", logprobs}});
  }
  return absl::OkStatus();
}

absl::Status RunGenerate(const GenerateCommand& command) {
  FRESHET_ASSIGN_OR_RETURN(const auto files, OpenModelDirectory(command.model));
  FRESHET_ASSIGN_OR_RETURN(const auto lists, ReadIds(command.ids_file, files->config()));
  FRESHET_ASSIGN_OR_RETURN(const auto engine, MakeEngine(*files, command.compute));
  std::vector<Response> responses(lists.size());
  size_t submitted = 0;
  while (submitted < lists.size() || !engine->Idle()) {
    while (submitted < lists.size()) {
      GenerationRequest request;
      request.id = static_cast<int64_t>(submitted);
      request.prompt_ids = lists[submitted];
      request.seed = static_cast<uint64_t>(command.seed);
      request.ordinal = request.id;
      request.sample_indices = {0};
      request.sampling.temperature = command.temperature;
      request.sampling.max_new_tokens = static_cast<int32_t>(command.max_new_tokens);
      if (!command.ignore_eos) request.sampling.stop_ids = files->config().eos_token_ids;
      const absl::Status status = engine->Submit(std::move(request));
      if (status.code() == absl::StatusCode::kResourceExhausted) break;
      if (!status.ok()) {
        return StatusOf(status.code(), command.ids_file, ":", submitted + 1, ": ", Message(status));
      }
      ++submitted;
    }
    FRESHET_ASSIGN_OR_RETURN(std::vector<GenerationOutput> outputs, engine->Poll());
    for (GenerationOutput& output : outputs) {
      FRESHET_RETURN_IF_ERROR(output.error);
      responses[static_cast<size_t>(output.request_id)] = std::move(output.response);
    }
  }
  for (const Response& response : responses) {
    PrintLine({{"ids", response.response_ids}, {"logprobs", response.behavior_logprobs}});
  }
  return absl::OkStatus();
}

}  // namespace freshet
