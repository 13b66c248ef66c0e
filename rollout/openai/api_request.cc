#include "rollout/openai/api_request.h"

#include <charconv>
#include <cmath>
#include <limits>
#include <utility>

#include "absl/strings/numbers.h"
#include "base/json_document.h"
#include "base/status_macros.h"
#include "base/str_cat.h"
#include "rollout/openai/api_error.h"
#include "rollout/openai/body_members.h"
#include "rollout/openai/chat_messages.h"

namespace freshet::openai {
namespace {

constexpr double kMaxTemperature = 100;
constexpr double kMaxBias = 100;
constexpr int64_t kMaxInt = std::numeric_limits<int32_t>::max();
// What chat_template_kwargs must not replace.
constexpr const char* kTemplateArguments[] = {
    "messages",      "tools",   "documents", "add_generation_prompt", "continue_final_message",
    "chat_template", "tokenize"};

// What vLLM or OpenAI can do and this server cannot, with the value that asks for nothing.
struct Unsupported {
  const char* name;
  Json harmless;
};

void RefuseUnsupported(BodyMembers& members, bool chat) {
  const Unsupported kBoth[] = {
      {"response_format", {{"type", "text"}}},
      {"allowed_token_ids", Json::array()},
      {"bad_words", Json::array()},
      {"logits_processors", Json::array()},
      {"use_beam_search", false},
      {"length_penalty", 1},
      {"early_stopping", false},
      {"echo", false},
      {"priority", 0},
      {"detokenize", true},
      {"spaces_between_special_tokens", true},
  };
  const Unsupported kChat[] = {
      {"add_special_tokens", false}, {"documents", Json::array()},
      {"function_call", "none"},     {"functions", Json::array()},
      {"include_reasoning", true},   {"modalities", Json::array({"text"})},
  };
  const Unsupported kCompletion[] = {{"suffix", ""}, {"best_of", 1}};
  for (const Unsupported& member : kBoth) members.Refuse(member.name, member.harmless);
  if (chat) {
    for (const Unsupported& member : kChat) members.Refuse(member.name, member.harmless);
  } else {
    for (const Unsupported& member : kCompletion) members.Refuse(member.name, member.harmless);
  }
  // They name the caller or what to store; the answer is the same.
  members.RefuseUnknown({"metadata", "prompt_cache_key", "prompt_cache_retention", "request_id",
                         "safety_identifier", "service_tier", "store", "user"});
}

bool ReadIds(const Json& list, std::vector<int32_t>& ids) {
  for (const Json& id : list) {
    if (!id.is_number_unsigned() || id.get<uint64_t>() > static_cast<uint64_t>(kMaxInt)) {
      return false;
    }
    ids.push_back(id.get<int32_t>());
  }
  return true;
}

void ReadPrompts(const char* name, BodyMembers& members, std::vector<ApiPrompt>& prompts) {
  constexpr char kWant[] = "is not a text, a list of token ids, or a list of such prompts";
  const Json* prompt = members.Find(name);
  if (prompt == nullptr) return members.Fail(name, "is missing");
  const auto add = [&](const Json& one) {
    ApiPrompt parsed;
    if (one.is_string()) {
      parsed.text = one.get<std::string>();
    } else if (!one.is_array() || !ReadIds(one, parsed.ids)) {
      return members.Fail(name, kWant);
    }
    if (one.is_array() && parsed.ids.empty()) return members.Fail(name, "is an empty list");
    prompts.push_back(std::move(parsed));
  };
  const bool is_list = prompt->is_array() && !prompt->empty() && !prompt->front().is_number();
  if (!is_list) return add(*prompt);
  if (prompt->size() > kMaxPrompts) {
    return members.Fail(name,
                        StrCat("has ", prompt->size(), " prompts, want at most ", kMaxPrompts));
  }
  for (const Json& one : *prompt) add(one);
}

void ReadStops(BodyMembers& members, ApiRequest& request) {
  const Json* stop = members.Find("stop");
  if (stop != nullptr) {
    const Json list = stop->is_array() ? *stop : Json::array({*stop});
    if (list.size() > kMaxStopStrings) {
      return members.Fail("stop",
                          StrCat("has ", list.size(), " texts, want at most ", kMaxStopStrings));
    }
    for (const Json& text : list) {
      if (!text.is_string() || text.get_ref<const std::string&>().empty() ||
          text.get_ref<const std::string&>().size() > kMaxStopStringBytes) {
        return members.Fail("stop", StrCat(Excerpt(text), " is not a text of 1 to ",
                                           kMaxStopStringBytes, " bytes"));
      }
      request.stop.push_back(text.get<std::string>());
    }
  }
  const Json* ids = members.Find("stop_token_ids");
  if (ids == nullptr) return;
  if (!ids->is_array() || ids->size() > kMaxStopIds || !ReadIds(*ids, request.stop_token_ids)) {
    members.Fail("stop_token_ids", StrCat("is not a list of at most ", kMaxStopIds, " token ids"));
  }
}

void ReadLogitBias(BodyMembers& members, SamplingParams& sampling) {
  const Json* bias = members.Find("logit_bias");
  if (bias == nullptr) return;
  if (!bias->is_object()) return members.Fail("logit_bias", "is not an object");
  for (const auto& [key, value] : bias->items()) {
    int32_t id = 0;
    if (!absl::SimpleAtoi(key, &id) || id < 0) {
      return members.Fail("logit_bias", StrCat("\"", key, "\" is not a token id"));
    }
    if (!value.is_number() || std::abs(value.get<double>()) > kMaxBias) {
      return members.Fail("logit_bias", StrCat("of token ", id, " is ", Excerpt(value),
                                               ", want a number from -100 to 100"));
    }
    sampling.logit_bias.emplace_back(id, value.get<float>());
  }
}

void ReadSampling(BodyMembers& members, ApiRequest& request) {
  SamplingParams& sampling = request.sampling;
  members.Read("temperature", sampling.temperature, 0, kMaxTemperature);
  if (sampling.temperature > 0 && sampling.temperature < kMinTemperature) {
    members.Fail("temperature", StrCat("is ", sampling.temperature, ", want 0 or a number from ",
                                       kMinTemperature, " to ", kMaxTemperature));
  }
  members.Read("top_p", sampling.top_p, 0, 1);
  if (sampling.top_p == 0) members.Fail("top_p", "is 0, want a number above it");
  members.Read("top_k", sampling.top_k, -1, kMaxInt);
  if (sampling.top_k < 0) sampling.top_k = 0;  // -1: all, as in vLLM
  members.Read("min_p", sampling.min_p, 0, 1);
  members.Read("repetition_penalty", sampling.repetition_penalty, 0.01, 100);
  members.Read("presence_penalty", sampling.presence_penalty, -2, 2);
  members.Read("frequency_penalty", sampling.frequency_penalty, -2, 2);
  members.Read("min_tokens", sampling.min_new_tokens, 0, kMaxInt);
  ReadLogitBias(members, sampling);
  members.Read("seed", request.seed);
  ReadStops(members, request);
  members.Read("ignore_eos", request.ignore_eos);
  members.Read("include_stop_str_in_output", request.include_stop_text);
  members.Read("skip_special_tokens", request.skip_special_tokens);
  members.Read("n", request.n, 1, kMaxSamples);
}

void ReadAnswerOptions(BodyMembers& members, ApiRequest& request) {
  members.Read("model", request.model);
  members.Read("return_token_ids", request.return_token_ids);
  members.Read("return_tokens_as_token_ids", request.tokens_as_ids);
  members.Read("stream", request.stream);
  const Json* options = members.Find("stream_options");
  if (options == nullptr) return;
  if (!request.stream) return members.Fail("stream_options", "needs stream: true");
  if (!options->is_object()) return members.Fail("stream_options", "is not an object");
  BodyMembers stream(*options);
  stream.Read("include_usage", request.include_usage);
  stream.Refuse("continuous_usage_stats", false);
  stream.RefuseUnknown({"include_obfuscation"});
  if (!stream.status().ok()) members.Fail("stream_options", Message(stream.status()));
}

absl::StatusOr<Json> ParseBody(std::string_view body) {
  FRESHET_ASSIGN_OR_RETURN(Json json, ParseOrderedJson(body, "body"));
  if (!json.is_object()) return InvalidArgument("body: not a JSON object");
  return json;
}

absl::Status CheckTotals(const ApiRequest& request) {
  if (request.prompts.size() * static_cast<size_t>(request.n) > kMaxAnswers) {
    return ParameterError("n", StrCat("times ", request.prompts.size(), " prompts is above ",
                                      kMaxAnswers, " answers"));
  }
  return absl::OkStatus();
}

void ReadTools(BodyMembers& members, ApiRequest& request) {
  const Json* tools = members.Find("tools");
  if (tools != nullptr) {
    if (absl::Status status = CheckTools(*tools); !status.ok()) {
      return members.Fail("tools", Message(status));
    }
    if (!tools->empty()) request.conversation.tools = tools->dump();
  }
  std::string choice = "auto";
  if (const Json* member = members.Find("tool_choice"); member != nullptr) {
    if (*member != "auto" && *member != "none") {
      return members.Fail("tool_choice",
                          StrCat(Excerpt(*member), " is not supported, want auto or none"));
    }
    choice = member->get<std::string>();
  }
  request.parse_tool_calls = request.conversation.tools != "null" && choice == "auto";
  members.Read("parallel_tool_calls", request.parallel_tool_calls);
}

void ReadConversation(BodyMembers& members, ApiRequest& request) {
  const Json* messages = members.Find("messages");
  if (messages == nullptr) return members.Fail("messages", "is missing");
  const absl::StatusOr<Json> normal = TemplateMessages(*messages);
  if (!normal.ok()) return members.Fail("messages", Message(normal.status()));
  request.conversation.messages = normal->dump();
  if (const Json* kwargs = members.Find("chat_template_kwargs"); kwargs != nullptr) {
    if (!kwargs->is_object()) return members.Fail("chat_template_kwargs", "is not an object");
    for (const char* name : kTemplateArguments) {
      if (!kwargs->contains(name)) continue;
      return members.Fail("chat_template_kwargs", StrCat("must not set ", name));
    }
    request.conversation.kwargs = kwargs->dump();
  }
  request.conversation.add_generation_prompt = !request.pooling;
  members.Read("add_generation_prompt", request.conversation.add_generation_prompt);
  members.Read("continue_final_message", request.conversation.continue_final_message);
  if (request.conversation.continue_final_message) {
    if (members.Find("add_generation_prompt") != nullptr &&
        request.conversation.add_generation_prompt) {
      return members.Fail("continue_final_message", "excludes add_generation_prompt");
    }
    request.conversation.add_generation_prompt = false;
  }
}

}  // namespace

SamplingParams SamplingDefaults(std::string_view generation_config) {
  SamplingParams sampling;
  const absl::StatusOr<Json> json = ParseOrderedJson(generation_config, "generation_config.json");
  if (!json.ok() || !json->is_object()) return sampling;
  const auto read = [&](const char* name, double min, double max, double& value) {
    BodyMembers members(*json);
    members.Read(name, value, min, max);
  };
  read("temperature", 0, kMaxTemperature, sampling.temperature);
  if (sampling.temperature < kMinTemperature) sampling.temperature = 0;
  read("top_p", std::numeric_limits<double>::min(), 1, sampling.top_p);
  read("min_p", 0, 1, sampling.min_p);
  read("repetition_penalty", 0.01, 100, sampling.repetition_penalty);
  BodyMembers(*json).Read("top_k", sampling.top_k, 0, kMaxInt);
  return sampling;
}

absl::StatusOr<ApiRequest> ParseCompletionRequest(std::string_view body,
                                                  const SamplingParams& defaults) {
  FRESHET_ASSIGN_OR_RETURN(const Json json, ParseBody(body));
  BodyMembers members(json);
  ApiRequest request;
  request.sampling = defaults;
  ReadPrompts("prompt", members, request.prompts);
  members.Read("add_special_tokens", request.add_special_tokens);
  ReadSampling(members, request);
  members.Read("max_tokens", request.max_tokens, 1, kMaxInt);
  std::optional<int32_t> logprobs;
  members.Read("logprobs", logprobs, 0, kMaxTopLogprobs);
  request.logprobs = logprobs.has_value();
  request.sampling.top_logprobs = logprobs.value_or(0);
  ReadAnswerOptions(members, request);
  RefuseUnsupported(members, /*chat=*/false);
  FRESHET_RETURN_IF_ERROR(members.status());
  FRESHET_RETURN_IF_ERROR(CheckTotals(request));
  return request;
}

absl::StatusOr<ApiRequest> ParseChatRequest(std::string_view body, const SamplingParams& defaults) {
  FRESHET_ASSIGN_OR_RETURN(const Json json, ParseBody(body));
  BodyMembers members(json);
  ApiRequest request;
  request.chat = true;
  request.sampling = defaults;
  ReadConversation(members, request);
  ReadSampling(members, request);
  ReadTools(members, request);
  members.Read("max_tokens", request.max_tokens, 1, kMaxInt);
  members.Read("max_completion_tokens", request.max_tokens, 1, kMaxInt);
  members.Read("logprobs", request.logprobs);
  members.Read("top_logprobs", request.sampling.top_logprobs, 0, kMaxTopLogprobs);
  if (request.sampling.top_logprobs > 0 && !request.logprobs) {
    members.Fail("top_logprobs", "needs logprobs: true");
  }
  ReadAnswerOptions(members, request);
  RefuseUnsupported(members, /*chat=*/true);
  FRESHET_RETURN_IF_ERROR(members.status());
  FRESHET_RETURN_IF_ERROR(CheckTotals(request));
  return request;
}

absl::StatusOr<ApiRequest> ParsePoolingRequest(std::string_view body) {
  FRESHET_ASSIGN_OR_RETURN(const Json json, ParseBody(body));
  BodyMembers members(json);
  ApiRequest request;
  request.pooling = true;
  request.chat = members.Find("messages") != nullptr;
  if (request.chat) {
    ReadConversation(members, request);
    members.Refuse("add_special_tokens", false);
  } else {
    ReadPrompts("input", members, request.prompts);
    members.Read("add_special_tokens", request.add_special_tokens);
  }
  members.Read("model", request.model);
  members.Refuse("task", "classify");
  bool activated = true;  // vLLM's default
  members.Read("use_activation", activated);
  if (activated) {
    members.Fail("use_activation", "want false: this server gives outputs without activation");
  }
  members.Refuse("encoding_format", "float");
  members.Refuse("priority", 0);
  members.RefuseUnknown({"request_id", "user"});
  FRESHET_RETURN_IF_ERROR(members.status());
  return request;
}

}  // namespace freshet::openai
