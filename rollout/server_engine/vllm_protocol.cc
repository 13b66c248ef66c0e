#include "rollout/server_engine/vllm_protocol.h"

#include <algorithm>
#include <utility>

#include "base/status_macros.h"
#include "base/str_cat.h"
#include "job/engine_limits.h"
#include "nlohmann/json.hpp"
#include "rollout/server_engine/server_answer.h"

namespace freshet {
namespace {

using Json = nlohmann::json;

constexpr ServerTraits kVllm{
    .engine = "vllm", .swaps_under_load = true, .min_temperature = kMinVllmTemperature};

absl::Status ParseTokens(const Json& choice, GeneratedPiece& piece) {
  const Json& ids = AnswerMember(choice, "token_ids");
  if (ids.is_null()) return absl::OkStatus();
  if (!ids.is_array()) return WrongAnswer("token_ids", ids, "a list");
  if (ids.empty()) return absl::OkStatus();
  const Json& content = AnswerMember(AnswerMember(choice, "logprobs"), "content");
  if (!content.is_array() || content.size() != ids.size()) {
    return Internal("the server's answer: ", ids.size(), " token_ids and ",
                    content.is_array() ? content.size() : 0, " log-probs");
  }
  for (size_t i = 0; i < ids.size(); ++i) {
    const std::optional<int64_t> id = AnswerCount(ids[i], kMaxTokenId);
    if (!id.has_value()) return WrongAnswer("a token id", ids[i], "an integer of at least 0");
    const std::optional<int64_t> named =
        AnswerCount(AnswerMember(content[i], "token_id"), kMaxTokenId);
    if (named != id) {
      return WrongAnswer("the token of a log-prob", AnswerMember(content[i], "token_id"),
                         "the token at its place");
    }
    const Json& logprob = AnswerMember(content[i], "logprob");
    if (!logprob.is_number()) return WrongAnswer("a log-prob", logprob, "a number");
    piece.ids.push_back(static_cast<int32_t>(*id));
    piece.logprobs.push_back(logprob.get<float>());
  }
  return absl::OkStatus();
}

absl::Status ParseSpans(const Json& spans, GeneratedPiece& piece) {
  if (spans.is_null()) return absl::OkStatus();
  if (!spans.is_array()) return WrongAnswer("weight_versions", spans, "a list");
  for (const Json& json : spans) {
    const Json& label = AnswerMember(json, "version");
    if (!label.is_string()) return WrongAnswer("a weight version", label, "a text");
    const PolicyVersion policy =
        ParseVersionLabel(label.get_ref<const std::string&>()).value_or(kForeignVersion);
    const std::optional<int64_t> begin = AnswerCount(AnswerMember(json, "start"), kMaxTokenId);
    const std::optional<int64_t> end = AnswerCount(AnswerMember(json, "end"), kMaxTokenId);
    if (!begin.has_value() || !end.has_value()) {
      return WrongAnswer("a span of weight_versions", json, "start and end");
    }
    if (*begin == *end) continue;
    piece.spans.push_back({policy, static_cast<int32_t>(*begin), static_cast<int32_t>(*end)});
  }
  return absl::OkStatus();
}

absl::StatusOr<PieceEnd> ParseVllmEnd(const Json& reason) {
  if (reason.is_null()) return PieceEnd::kNone;
  if (reason == "stop") return PieceEnd::kStop;
  if (reason == "length") return PieceEnd::kLength;
  if (reason == "abort") return PieceEnd::kAbort;
  return WrongAnswer("finish_reason", reason, "stop, length or abort");
}

// One null per worker.
absl::Status CheckReload(const std::string& body) {
  FRESHET_ASSIGN_OR_RETURN(const Json json, ParseAnswer(body, "reload"));
  const Json& results = AnswerMember(json, "results");
  if (!results.is_array() || results.empty() ||
      std::ranges::any_of(results, [](const Json& one) { return !one.is_null(); })) {
    return WrongAnswer("results", results, "a null for each worker");
  }
  return absl::OkStatus();
}

class Vllm final : public ServerProtocol {
 public:
  const ServerTraits& traits() const override { return kVllm; }

  runtime::HttpCall Generate(const GenerateCall& call,
                             const SamplingParams& sampling) const override {
    std::vector<int32_t> stop_ids = sampling.stop_ids;
    std::ranges::sort(stop_ids);
    stop_ids.erase(std::unique(stop_ids.begin(), stop_ids.end()), stop_ids.end());
    Json params = {{"max_tokens", call.max_tokens},
                   {"temperature", sampling.temperature},
                   {"seed", call.seed >> 2},  // below 2^63
                   {"logprobs", 0},
                   {"ignore_eos", true},  // stop_token_ids has all of them
                   {"stop_token_ids", stop_ids},
                   {"detokenize", false},
                   {"stream_interval", call.stream_interval}};
    if (sampling.Truncates()) {
      params["top_p"] = sampling.top_p;
      params["top_k"] = sampling.top_k;
      params["min_p"] = sampling.min_p;
    }
    const Json body = {
        {"request_id", call.request_id}, {"model", call.model}, {"cache_salt", call.cache_salt},
        {"token_ids", call.token_ids},   {"stream", true},      {"sampling_params", params}};
    return PostCall("/inference/v1/generate", body.dump());
  }

  absl::StatusOr<GenerateEvent> ParseEvent(const std::string& data,
                                           const SampleAnswer&) const override {
    GenerateEvent event;
    if (data == "[DONE]") {
      event.done = true;
      return event;
    }
    FRESHET_ASSIGN_OR_RETURN(const Json json, ParseAnswer(data, "event"));
    const Json& error = AnswerMember(json, "error");
    if (!error.is_null()) {
      const std::optional<int64_t> code = AnswerCount(AnswerMember(error, "code"), 999);
      return HttpError("generate", static_cast<int>(code.value_or(500)), data);
    }
    const Json& choices = AnswerMember(json, "choices");
    if (!choices.is_array() || choices.size() > 1)
      return WrongAnswer("choices", choices, "at most one");
    if (choices.empty()) return event;
    const Json& choice = choices[0];
    if (AnswerCount(AnswerMember(choice, "index"), 0) != 0) {
      return WrongAnswer("a choice's index", AnswerMember(choice, "index"), "0");
    }
    GeneratedPiece piece;
    FRESHET_RETURN_IF_ERROR(ParseTokens(choice, piece));
    FRESHET_ASSIGN_OR_RETURN(piece.end, ParseVllmEnd(AnswerMember(choice, "finish_reason")));
    FRESHET_RETURN_IF_ERROR(ParseSpans(AnswerMember(choice, "weight_versions"), piece));
    event.piece = std::move(piece);
    return event;
  }

  std::vector<runtime::HttpCall> Abort(const std::vector<std::string>& request_ids,
                                       bool) const override {
    std::vector<std::string> wire_ids;  // as the server names generate requests
    for (const std::string& id : request_ids) wire_ids.push_back("generate-tokens-" + id);
    return {PostCall("/inference/v1/abort_requests", Json{{"request_ids", wire_ids}}.dump())};
  }

  std::vector<ControlStep> SetVersion(const PolicyVersion& policy) const override {
    return {
        {.call = PostCall("/update_weight_version",
                          Json{{"new_version", VersionLabel(policy)}}.dump())},
        {.call = GetCall("/weight_info"),
         .check = [policy](const std::string& body) { return CheckWeightVersion(body, policy); }},
    };
  }

  std::vector<ControlStep> Load(const StoredWeights& weights, bool recompute_kv) const override {
    const Json reload = {{"method", "reload_weights"},
                         {"kwargs", {{"weights_path", weights.path}}}};
    std::vector<ControlStep> steps = {
        PauseVllm(recompute_kv),
        {.call = PostCall("/collective_rpc", reload.dump()),
         .loads_weights = true,
         .check = CheckReload},
    };
    for (ControlStep& step : ResumeVllm(weights.policy, recompute_kv)) {
      steps.push_back(std::move(step));
    }
    return steps;
  }
};

}  // namespace

const ServerProtocol& VllmProtocol() {
  static const Vllm kProtocol;
  return kProtocol;
}

ControlStep PauseVllm(bool recompute_kv) {
  return {.call =
              PostCall(StrCat("/pause?mode=keep&clear_cache=", recompute_kv ? "true" : "false"))};
}

std::vector<ControlStep> ResumeVllm(const PolicyVersion& policy, bool recompute_kv) {
  std::vector<ControlStep> steps;
  if (!recompute_kv) {
    // Without effect on prefixes that running samples use. New samples do not find these, because
    // the cache salt of their version differs.
    steps.push_back({.call = PostCall(
                         "/reset_prefix_cache?reset_running_requests=false&reset_external=false")});
  }
  for (ControlStep& step : VllmProtocol().SetVersion(policy)) steps.push_back(std::move(step));
  steps.push_back({.call = PostCall("/resume")});
  return steps;
}

}  // namespace freshet
