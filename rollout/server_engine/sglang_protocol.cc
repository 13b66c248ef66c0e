#include "rollout/server_engine/sglang_protocol.h"

#include <algorithm>
#include <utility>

#include "base/status_macros.h"
#include "base/str_cat.h"
#include "nlohmann/json.hpp"
#include "rollout/server_engine/server_answer.h"

namespace freshet {
namespace {

using Json = nlohmann::json;

constexpr ServerTraits kSglang{
    .engine = "sglang", .swaps_under_load = false, .reserved_tokens = 2, .stops_at_eos = true};

// An abort also ends requests whose ids begin with the given one. None does after this.
std::string Rid(const std::string& request_id) { return request_id + "."; }

struct TokenEntry {
  int32_t id = 0;
  float logprob = 0;
};

// The entries of output_token_logprobs: [log-prob, token, text or null].
absl::StatusOr<std::vector<TokenEntry>> ParseEntries(const Json& list) {
  std::vector<TokenEntry> entries;
  if (list.is_null()) return entries;
  if (!list.is_array()) return WrongAnswer("output_token_logprobs", list, "a list");
  for (const Json& json : list) {
    if (!json.is_array() || json.size() < 2) {
      return WrongAnswer("an entry of output_token_logprobs", json, "a log-prob and a token");
    }
    if (!json[0].is_number()) return WrongAnswer("a log-prob", json[0], "a number");
    const std::optional<int64_t> id = AnswerCount(json[1], kMaxTokenId);
    if (!id.has_value()) return WrongAnswer("a token", json[1], "an integer of at least 0");
    entries.push_back({static_cast<int32_t>(*id), json[0].get<float>()});
  }
  return entries;
}

// Checks that `ids` are the last ones of `entries`.
absl::Status CheckOutputIds(const Json& ids, const std::vector<TokenEntry>& entries) {
  if (!ids.is_array()) return WrongAnswer("output_ids", ids, "a list");
  if (ids.size() > entries.size()) {
    return Internal("the server's answer: ", ids.size(), " output_ids and ", entries.size(),
                    " log-probs");
  }
  const size_t skip = entries.size() - ids.size();
  for (size_t i = 0; i < ids.size(); ++i) {
    if (AnswerCount(ids[i], kMaxTokenId) == entries[skip + i].id) continue;
    return WrongAnswer("one of output_ids", ids[i], "the token of its log-prob");
  }
  return absl::OkStatus();
}

absl::Status ParseTokens(const Json& json, const std::vector<int32_t>& before,
                         GeneratedPiece& piece) {
  const Json& meta = AnswerMember(json, "meta_info");
  FRESHET_ASSIGN_OR_RETURN(const std::vector<TokenEntry> entries,
                           ParseEntries(AnswerMember(meta, "output_token_logprobs")));
  FRESHET_RETURN_IF_ERROR(CheckOutputIds(AnswerMember(json, "output_ids"), entries));
  const Json& tokens = AnswerMember(meta, "completion_tokens");
  const std::optional<int64_t> total = AnswerCount(tokens, kMaxTokenId);
  if (!total.has_value()) return WrongAnswer("completion_tokens", tokens, "a number of tokens");
  const auto listed = std::ssize(entries);
  const auto known = std::ssize(before);
  if (*total < known || (listed != *total && known + listed != *total)) {
    return Internal("the server's answer: ", listed, " log-probs after ", known,
                    " tokens, completion_tokens is ", *total);
  }
  auto next = entries.begin();
  if (listed == *total) {
    for (const int32_t id : before) {
      if (id != (next++)->id) return Internal("the server's answer changes tokens sent before");
    }
  }
  for (; next != entries.end(); ++next) {
    piece.ids.push_back(next->id);
    piece.logprobs.push_back(next->logprob);
  }
  return absl::OkStatus();
}

absl::StatusOr<PieceEnd> ParseSglangEnd(const Json& reason) {
  if (reason.is_null()) return PieceEnd::kNone;
  const Json& type = AnswerMember(reason, "type");
  if (type == "length") return PieceEnd::kLength;
  if (type == "stop") {
    const Json& matched = AnswerMember(reason, "matched");
    if (matched.is_number_integer()) return PieceEnd::kStop;
    return Internal("the server stopped an answer at ", matched.dump().substr(0, 80),
                    ", which is no token; are its weights finite?");
  }
  if (type != "abort") return WrongAnswer("finish_reason", reason, "stop, length or abort");
  const Json& status = AnswerMember(reason, "status_code");
  if (status.is_null()) return PieceEnd::kAbort;
  return HttpError("generate", static_cast<int>(AnswerCount(status, 999).value_or(500)),
                   reason.dump());
}

absl::Status CheckSuccess(const std::string& body) {
  FRESHET_ASSIGN_OR_RETURN(const Json json, ParseAnswer(body, "result"));
  if (AnswerMember(json, "success") == true) return absl::OkStatus();
  return WrongAnswer("the result", json, "success");
}

ControlStep ReadVersion(const PolicyVersion& policy) {
  return {.call = GetCall("/model_info"),
          .check = [policy](const std::string& body) { return CheckWeightVersion(body, policy); }};
}

class Sglang final : public ServerProtocol {
 public:
  const ServerTraits& traits() const override { return kSglang; }

  runtime::HttpCall Generate(const GenerateCall& call,
                             const SamplingParams& sampling) const override {
    Json params = {{"max_new_tokens", call.max_tokens},
                   {"temperature", sampling.temperature},
                   {"sampling_seed", call.seed >> 33},  // below 2^31
                   {"ignore_eos", sampling.stop_ids.empty()},
                   {"stream_interval", call.stream_interval}};
    if (!sampling.stop_ids.empty()) params["stop_token_ids"] = sampling.stop_ids;
    if (sampling.Truncates()) {
      params["top_p"] = sampling.top_p;
      params["top_k"] = sampling.top_k > 0 ? sampling.top_k : -1;
      params["min_p"] = sampling.min_p;
    }
    return PostCall("/generate", Json{{"rid", Rid(call.request_id)},
                                      {"extra_key", call.cache_salt},
                                      {"input_ids", call.token_ids},
                                      {"return_logprob", true},
                                      {"logprob_start_len", -1},
                                      {"stream", true},
                                      {"sampling_params", params}}
                                     .dump());
  }

  absl::StatusOr<GenerateEvent> ParseEvent(const std::string& data,
                                           const SampleAnswer& answer) const override {
    GenerateEvent event;
    if (data == "[DONE]") {
      event.done = true;
      return event;
    }
    FRESHET_ASSIGN_OR_RETURN(const Json json, ParseAnswer(data, "event"));
    const Json& error = AnswerMember(json, "error");
    if (!error.is_null()) {  // without a code, the request is invalid
      const std::optional<int64_t> code = AnswerCount(AnswerMember(error, "code"), 999);
      return HttpError("generate", static_cast<int>(code.value_or(400)), data);
    }
    const Json& meta = AnswerMember(json, "meta_info");
    if (!meta.is_object()) return WrongAnswer("meta_info", meta, "an object");
    GeneratedPiece piece;
    FRESHET_ASSIGN_OR_RETURN(piece.end, ParseSglangEnd(AnswerMember(meta, "finish_reason")));
    FRESHET_RETURN_IF_ERROR(ParseTokens(json, answer.ids(), piece));
    const Json& label = AnswerMember(meta, "weight_version");
    if (!label.is_string()) return WrongAnswer("weight_version", label, "a text");
    if (!piece.ids.empty()) {
      const auto begin = static_cast<int32_t>(answer.ids().size());
      piece.spans.push_back(
          {ParseVersionLabel(label.get_ref<const std::string&>()).value_or(kForeignVersion), begin,
           begin + static_cast<int32_t>(piece.ids.size())});
    }
    // The server looks at the length first.
    if (piece.end == PieceEnd::kLength && !piece.ids.empty() && answer.IsStop(piece.ids.back())) {
      piece.end = PieceEnd::kStop;
    }
    event.piece = std::move(piece);
    return event;
  }

  std::vector<runtime::HttpCall> Abort(const std::vector<std::string>& request_ids,
                                       bool all) const override {
    if (all) return {PostCall("/abort_request", Json{{"abort_all", true}}.dump())};
    std::vector<runtime::HttpCall> calls;
    for (const std::string& id : request_ids) {
      calls.push_back(PostCall("/abort_request", Json{{"rid", Rid(id)}}.dump()));
    }
    return calls;
  }

  std::vector<ControlStep> SetVersion(const PolicyVersion& policy) const override {
    const Json body = {{"new_version", VersionLabel(policy)}, {"abort_all_requests", false}};
    return {
        {.call = PostCall("/update_weight_version", body.dump()), .check = CheckSuccess},
        ReadVersion(policy),
    };
  }

  std::vector<ControlStep> Load(const StoredWeights& weights, bool) const override {
    const Json load = {{"model_path", weights.path},
                       {"weight_version", VersionLabel(weights.policy)},
                       {"abort_all_requests", false},
                       {"flush_cache", true}};
    return {
        {.call = PostCall("/pause_generation", Json{{"mode", "abort"}}.dump())},
        {.call = PostCall("/update_weights_from_disk", load.dump()),
         .loads_weights = true,
         .check = CheckSuccess},
        ReadVersion(weights.policy),
        {.call = PostCall("/continue_generation", "{}")},
    };
  }
};

}  // namespace

const ServerProtocol& SglangProtocol() {
  static const Sglang kProtocol;
  return kProtocol;
}

}  // namespace freshet
