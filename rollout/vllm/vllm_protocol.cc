#include "rollout/vllm/vllm_protocol.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <utility>

#include "base/json_document.h"
#include "base/status_macros.h"
#include "base/str_cat.h"
#include "nlohmann/json.hpp"

namespace freshet {
namespace {

using Json = nlohmann::json;

constexpr JsonLimits kAnswerLimits{.max_depth = 16, .max_values = 1'000'000};
constexpr float kNoLogprob = -9999.0F;  // what the server sends for NaN and minus infinity
constexpr float kMostLogprob = 1e-3F;   // log-probs above 0 by rounding
constexpr int64_t kMaxVersion = int64_t{1} << 53;

absl::StatusOr<Json> ParseAnswer(const std::string& text, const char* what) {
  absl::StatusOr<Json> json = ParseJson(text, StrCat("vLLM's ", what), kAnswerLimits);
  if (!json.ok()) return Internal(Message(json.status()));
  if (!json->is_object()) return Internal("vLLM's ", what, " is not an object");
  return json;
}

// The member `name`, or null.
const Json& Member(const Json& object, const char* name) {
  static const Json kNull;
  if (!object.is_object()) return kNull;
  const auto found = object.find(name);
  return found == object.end() ? kNull : *found;
}

// An integer from 0 to `max`.
std::optional<int64_t> Count(const Json& json, int64_t max) {
  if (!json.is_number_integer()) return std::nullopt;
  if (json.is_number_unsigned() && json.get<uint64_t>() > static_cast<uint64_t>(max)) {
    return std::nullopt;
  }
  const auto value = json.get<int64_t>();
  if (value < 0 || value > max) return std::nullopt;
  return value;
}

absl::Status Wrong(const char* where, const Json& got, const char* want) {
  return Internal("vLLM's answer: ", where, " is ", JsonExcerpt(got), ", want ", want);
}

absl::Status ParseTokens(const Json& choice, GeneratedPiece& piece) {
  constexpr int64_t kMaxId = std::numeric_limits<int32_t>::max();
  const Json& ids = Member(choice, "token_ids");
  if (ids.is_null()) return absl::OkStatus();
  if (!ids.is_array()) return Wrong("token_ids", ids, "a list");
  if (ids.empty()) return absl::OkStatus();
  const Json& content = Member(Member(choice, "logprobs"), "content");
  if (!content.is_array() || content.size() != ids.size()) {
    return Internal("vLLM's answer: ", ids.size(), " token_ids and ",
                    content.is_array() ? content.size() : 0, " log-probs");
  }
  for (size_t i = 0; i < ids.size(); ++i) {
    const std::optional<int64_t> id = Count(ids[i], kMaxId);
    if (!id.has_value()) return Wrong("a token id", ids[i], "an integer of at least 0");
    const std::optional<int64_t> named = Count(Member(content[i], "token_id"), kMaxId);
    if (named != id) {
      return Wrong("the token of a log-prob", Member(content[i], "token_id"),
                   "the token at its place");
    }
    const Json& logprob = Member(content[i], "logprob");
    if (!logprob.is_number()) return Wrong("a log-prob", logprob, "a number");
    piece.ids.push_back(static_cast<int32_t>(*id));
    piece.logprobs.push_back(logprob.get<float>());
  }
  return absl::OkStatus();
}

absl::Status ParseSpans(const Json& spans, GeneratedPiece& piece) {
  if (spans.is_null()) return absl::OkStatus();
  if (!spans.is_array()) return Wrong("weight_versions", spans, "a list");
  for (const Json& json : spans) {
    const Json& label = Member(json, "version");
    if (!label.is_string()) return Wrong("a weight version", label, "a text");
    const PolicyVersion policy =
        ParseVersionLabel(label.get_ref<const std::string&>()).value_or(kForeignVersion);
    const std::optional<int64_t> begin =
        Count(Member(json, "start"), std::numeric_limits<int32_t>::max());
    const std::optional<int64_t> end =
        Count(Member(json, "end"), std::numeric_limits<int32_t>::max());
    if (!begin.has_value() || !end.has_value()) {
      return Wrong("a span of weight_versions", json, "start and end");
    }
    if (*begin == *end) continue;
    piece.spans.push_back({policy, static_cast<int32_t>(*begin), static_cast<int32_t>(*end)});
  }
  return absl::OkStatus();
}

absl::StatusOr<PieceEnd> ParseEnd(const Json& reason) {
  if (reason.is_null()) return PieceEnd::kNone;
  if (reason == "stop") return PieceEnd::kStop;
  if (reason == "length") return PieceEnd::kLength;
  if (reason == "abort") return PieceEnd::kAbort;
  return Wrong("finish_reason", reason, "stop, length or abort");
}

// The message of an error object, or the beginning of the text.
std::string ErrorText(const std::string& body) {
  constexpr size_t kMaxBytes = 300;
  std::string text = body;
  const absl::StatusOr<Json> json = ParseJson(body, "", kAnswerLimits);
  if (json.ok()) {
    const Json& message = Member(Member(*json, "error"), "message");
    const Json& detail = Member(*json, "detail");
    if (message.is_string()) text = message.get<std::string>();
    if (detail.is_string()) text = detail.get<std::string>();
  }
  text = text.substr(0, kMaxBytes);
  for (char& c : text) {
    if (c < ' ' || c > '~') c = ' ';
  }
  return text;
}

}  // namespace

std::string GenerateBody(const GenerateCall& call, const SamplingParams& sampling) {
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
  return Json{
      {"request_id", call.request_id}, {"model", call.model}, {"cache_salt", call.cache_salt},
      {"token_ids", call.token_ids},   {"stream", true},      {"sampling_params", params}}
      .dump();
}

std::string WireId(const std::string& request_id) { return "generate-tokens-" + request_id; }

std::string AbortBody(const std::vector<std::string>& wire_ids) {
  return Json{{"request_ids", wire_ids}}.dump();
}

std::string ReloadBody(const std::string& weights_path) {
  return Json{{"method", "reload_weights"}, {"kwargs", {{"weights_path", weights_path}}}}.dump();
}

std::string VersionBody(const PolicyVersion& policy) {
  return Json{{"new_version", VersionLabel(policy)}}.dump();
}

std::string VersionLabel(const PolicyVersion& policy) {
  return StrCat(policy.lineage, ".", policy.version);
}

std::optional<PolicyVersion> ParseVersionLabel(std::string_view label) {
  const auto number = [](std::string_view text) -> std::optional<int64_t> {
    int64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size() || value < 0 ||
        value > kMaxVersion) {
      return std::nullopt;
    }
    return value;
  };
  const size_t dot = label.find('.');
  if (dot == std::string_view::npos) return std::nullopt;
  const std::optional<int64_t> lineage = number(label.substr(0, dot));
  const std::optional<int64_t> version = number(label.substr(dot + 1));
  if (!lineage.has_value() || !version.has_value()) return std::nullopt;
  return PolicyVersion{*lineage, *version};
}

absl::Status EventLines::Add(std::string_view bytes, std::vector<std::string>& lines) {
  rest_.append(bytes);
  size_t begin = 0;
  for (size_t end = rest_.find('\n'); end != std::string::npos; end = rest_.find('\n', begin)) {
    std::string_view line = std::string_view(rest_).substr(begin, end - begin);
    begin = end + 1;
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (!line.starts_with("data:")) continue;
    line.remove_prefix(5);
    if (line.starts_with(' ')) line.remove_prefix(1);
    lines.emplace_back(line);
  }
  rest_.erase(0, begin);
  if (rest_.size() > kMaxBytes) {
    return Internal("vLLM's answer: an event of more than ", kMaxBytes, " bytes");
  }
  return absl::OkStatus();
}

absl::StatusOr<GenerateEvent> ParseGenerateEvent(const std::string& data) {
  GenerateEvent event;
  if (data == "[DONE]") {
    event.done = true;
    return event;
  }
  FRESHET_ASSIGN_OR_RETURN(const Json json, ParseAnswer(data, "event"));
  const Json& error = Member(json, "error");
  if (!error.is_null()) {
    const std::optional<int64_t> code = Count(Member(error, "code"), 999);
    return HttpError("generate", static_cast<int>(code.value_or(500)), data);
  }
  const Json& choices = Member(json, "choices");
  if (!choices.is_array() || choices.size() > 1) return Wrong("choices", choices, "at most one");
  if (choices.empty()) return event;
  const Json& choice = choices[0];
  if (Count(Member(choice, "index"), 0) != 0) {
    return Wrong("a choice's index", Member(choice, "index"), "0");
  }
  GeneratedPiece piece;
  FRESHET_RETURN_IF_ERROR(ParseTokens(choice, piece));
  FRESHET_ASSIGN_OR_RETURN(piece.end, ParseEnd(Member(choice, "finish_reason")));
  FRESHET_RETURN_IF_ERROR(ParseSpans(Member(choice, "weight_versions"), piece));
  event.piece = std::move(piece);
  return event;
}

absl::Status SampleAnswer::Add(GeneratedPiece piece) {
  if (end_ != PieceEnd::kNone) return Internal("vLLM's answer goes on after its end");
  if (piece.ids.size() != piece.logprobs.size()) {
    return Internal("vLLM's answer: ", piece.ids.size(), " tokens and ", piece.logprobs.size(),
                    " log-probs");
  }
  if (static_cast<int64_t>(ids_.size() + piece.ids.size()) > max_tokens_) {
    return Internal("vLLM's answer has more than max_tokens ", max_tokens_, " tokens");
  }
  for (size_t i = 0; i < piece.ids.size(); ++i) {
    if (piece.ids[i] < 0 || piece.ids[i] >= vocab_size_) {
      return Internal("vLLM's answer: token ", piece.ids[i], " is outside of the vocabulary of ",
                      vocab_size_);
    }
    const float logprob = piece.logprobs[i];
    if (!(logprob > kNoLogprob && logprob < kMostLogprob)) {
      return Internal("vLLM's answer: log-prob ", logprob, " of a sampled token; the weights or ",
                      "the server's cache may have values that are not finite");
    }
    ids_.push_back(piece.ids[i]);
    logprobs_.push_back(std::min(logprob, 0.0F));
  }
  end_ = piece.end;
  if (end_ == PieceEnd::kNone) return absl::OkStatus();
  spans_ = std::move(piece.spans);
  return CheckEnd();
}

absl::Status SampleAnswer::CheckEnd() const {
  const auto size = static_cast<int64_t>(ids_.size());
  if (end_ == PieceEnd::kLength && size != max_tokens_) {
    return Internal("vLLM ended an answer of ", size, " tokens by its length, max_tokens is ",
                    max_tokens_, "; is --max-model-len too small?");
  }
  if (end_ == PieceEnd::kStop &&
      (ids_.empty() || std::ranges::find(stop_ids_, ids_.back()) == stop_ids_.end())) {
    return Internal("vLLM stopped an answer at a token that is no stop token");
  }
  int64_t covered = 0;
  for (const Span& span : spans_) {
    if (span.begin != covered || span.end <= span.begin) {
      return Internal("vLLM's weight_versions have a gap or an overlap at token ", covered);
    }
    covered = span.end;
  }
  if (covered != size) {
    return Internal("vLLM's weight_versions cover ", covered, " of ", size, " tokens");
  }
  return absl::OkStatus();
}

void AppendAnswer(const SampleAnswer& answer, size_t count, bool changes_distribution,
                  Response& response) {
  const size_t before = response.response_ids.size();
  const bool both = changes_distribution || !response.sampling_logprobs.empty();
  if (both && response.sampling_logprobs.empty()) {
    response.sampling_logprobs = response.behavior_logprobs;
  }
  const auto offset = static_cast<int32_t>(before);
  const auto end = static_cast<int32_t>(count);
  const auto prefix = static_cast<std::ptrdiff_t>(count);
  response.response_ids.insert(response.response_ids.end(), answer.ids().begin(),
                               answer.ids().begin() + prefix);
  response.behavior_logprobs.insert(response.behavior_logprobs.end(), answer.logprobs().begin(),
                                    answer.logprobs().begin() + prefix);
  if (both) {
    response.sampling_logprobs.insert(response.sampling_logprobs.end(), answer.logprobs().begin(),
                                      answer.logprobs().begin() + prefix);
  }
  response.loss_mask.resize(before + count, 1);
  for (const Span& span : answer.spans()) {
    if (span.begin >= end) break;
    const int32_t last = std::min(span.end, end) + offset;
    if (!response.spans.empty() && response.spans.back().policy == span.policy) {
      response.spans.back().end = last;
    } else {
      response.spans.push_back({span.policy, span.begin + offset, last});
    }
  }
}

absl::Status HttpError(std::string_view what, int status, const std::string& body) {
  absl::StatusCode code = absl::StatusCode::kUnavailable;
  std::string hint;
  if (status == 400 || status == 413 || status == 422) {
    code = absl::StatusCode::kInvalidArgument;
  } else if (status == 401 || status == 403 || status == 404 || status == 405) {
    code = absl::StatusCode::kFailedPrecondition;
    hint = "; start the server with VLLM_SERVER_DEV_MODE=1 and --enable-scale-out";
  }
  return StatusOf(code, "vLLM answers ", what, " with ", status, ": ", ErrorText(body), hint);
}

absl::StatusOr<ServedModel> ParseServedModel(const std::string& body) {
  FRESHET_ASSIGN_OR_RETURN(const Json json, ParseAnswer(body, "list of models"));
  const Json& data = Member(json, "data");
  if (!data.is_array() || data.empty()) return Wrong("data", data, "a list of models");
  const Json& id = Member(data[0], "id");
  const std::optional<int64_t> length = Count(Member(data[0], "max_model_len"), kMaxVersion);
  if (!id.is_string()) return Wrong("a model's id", id, "a text");
  if (!length.has_value()) {
    return Wrong("max_model_len", Member(data[0], "max_model_len"), "a number of tokens");
  }
  return ServedModel{id.get<std::string>(), *length};
}

absl::StatusOr<std::string> ParseWeightInfo(const std::string& body) {
  FRESHET_ASSIGN_OR_RETURN(const Json json, ParseAnswer(body, "weight info"));
  const Json& version = Member(json, "weight_version");
  if (!version.is_string()) return Wrong("weight_version", version, "a text");
  return version.get<std::string>();
}

absl::Status CheckReload(const std::string& body) {
  FRESHET_ASSIGN_OR_RETURN(const Json json, ParseAnswer(body, "reload"));
  const Json& results = Member(json, "results");
  if (!results.is_array() || results.empty() ||
      std::ranges::any_of(results, [](const Json& one) { return !one.is_null(); })) {
    return Wrong("results", results, "a null for each worker");
  }
  return absl::OkStatus();
}

}  // namespace freshet
