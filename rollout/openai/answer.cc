#include "rollout/openai/answer.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "base/digest.h"
#include "base/str_cat.h"
#include "rollout/openai/api_error.h"
#include "rollout/openai/choice_text.h"

namespace freshet::openai {
namespace {

constexpr double kLowestLogprob = -9999.0;  // JSON has no infinity; the value is vLLM's

std::string Dump(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

double Finite(float logprob) {
  return std::isfinite(logprob) ? std::max<double>(logprob, kLowestLogprob) : kLowestLogprob;
}

int64_t NumCharacters(const std::string& text) {
  return std::count_if(text.begin(), text.end(),
                       [](char byte) { return (static_cast<unsigned char>(byte) & 0xC0) != 0x80; });
}

Json Bytes(const std::string& text) {
  Json bytes = Json::array();
  for (const char byte : text) bytes.push_back(static_cast<unsigned char>(byte));
  return bytes;
}

}  // namespace

// What of a choice was not sent yet, or all of it if it is not streamed.
struct Answer::Choice {
  std::unique_ptr<ChoiceText> text;
  std::optional<ToolCallParser> parser;
  bool begun = false;  // an event was sent
  int32_t num_tokens = 0;
  size_t num_calls = 0;

  std::string content;
  std::vector<ToolCall> calls;  // the last ones of num_calls
  std::vector<int32_t> ids;
  std::vector<SampledToken> tokens;  // with logprobs
  int64_t text_offset = 0;           // characters before `tokens`
  Json finish_reason;
  Json stop_reason;
  Json spans = Json::array();
};

std::string VersionLabel(PolicyVersion policy) {
  return StrCat(policy.lineage, ".", policy.version);
}

std::string Event(const std::string& json) { return StrCat("data: ", json, "\n\n"); }

Answer::Answer(AnswerHead head, std::shared_ptr<const ApiRequest> request,
               std::vector<std::vector<int32_t>> prompts, std::vector<int32_t> stop_ids,
               const Tokenizer& tokenizer, ToolCallFormat tool_format)
    : head_(std::move(head)),
      request_(std::move(request)),
      prompts_(std::move(prompts)),
      stop_ids_(std::move(stop_ids)),
      tokenizer_(tokenizer),
      choices_(request_->pooling ? 0 : prompts_.size() * static_cast<size_t>(request_->n)),
      scores_(request_->pooling ? prompts_.size() : 0) {
  const bool parse = request_->parse_tool_calls && tool_format != ToolCallFormat::kNone;
  // Some models mark calls with special tokens.
  const bool skip_special = request_->skip_special_tokens && !parse;
  for (Choice& choice : choices_) {
    choice.text = std::make_unique<ChoiceText>(request_->stop, request_->include_stop_text,
                                               tokenizer.MakeStreamDecoder(skip_special));
    if (parse) choice.parser.emplace(tool_format);
  }
}

Answer::~Answer() = default;

std::string Answer::Add(size_t prompt, const GeneratedToken& token) {
  const size_t index =
      prompt * static_cast<size_t>(request_->n) + static_cast<size_t>(token.sample_index);
  Choice& choice = choices_[index];
  ++completion_tokens_;
  const int32_t position = choice.num_tokens++;
  if (request_->return_token_ids) {
    choice.ids.push_back(token.token.id);
    const std::string version = VersionLabel(token.policy);
    if (choice.spans.empty() || choice.spans.back()["version"] != version) {
      choice.spans.push_back({{"version", version}, {"start", position}, {"end", position}});
    }
    choice.spans.back()["end"] = position + 1;
  }
  if (request_->logprobs) choice.tokens.push_back(token.token);
  AddText(choice, token);
  return request_->stream ? Flush(prompt, index, choice) : "";
}

void Answer::AddText(Choice& choice, const GeneratedToken& token) {
  const int32_t id = token.token.id;
  const bool stopped = token.finish == FinishReason::kStop;
  const bool stop_token =
      stopped && std::find(stop_ids_.begin(), stop_ids_.end(), id) != stop_ids_.end();
  std::string text;
  if (!stop_token || request_->include_stop_text) text = choice.text->Push(id);
  const bool last = token.finish != FinishReason::kNone;
  if (last) text += choice.text->Finish();
  Show(choice, text, last);
  if (!last) return;
  const std::optional<std::string>& stopped_by = choice.text->stopped_by();
  choice.finish_reason = stopped || stopped_by.has_value() ? "stop" : "length";
  if (choice.num_calls > 0 && choice.finish_reason == "stop") choice.finish_reason = "tool_calls";
  if (stopped_by.has_value()) {
    choice.stop_reason = *stopped_by;
  } else if (stop_token &&
             std::find(request_->stop_token_ids.begin(), request_->stop_token_ids.end(), id) !=
                 request_->stop_token_ids.end()) {
    choice.stop_reason = id;
  }
}

void Answer::Show(Choice& choice, const std::string& text, bool last) const {
  if (!choice.parser.has_value()) {
    choice.content += text;
    return;
  }
  const auto take = [&](ToolCallParser::Parsed parsed) {
    choice.content += parsed.content;
    for (ToolCall& call : parsed.calls) {
      if (choice.num_calls > 0 && !request_->parallel_tool_calls) return;
      choice.calls.push_back(std::move(call));
      ++choice.num_calls;
    }
  };
  take(choice.parser->Push(text));
  if (last) take(choice.parser->Finish());
}

std::string Answer::Flush(size_t prompt, size_t index, Choice& choice) {
  const bool visible = !choice.content.empty() || !choice.calls.empty() || !choice.ids.empty() ||
                       !choice.tokens.empty() || !choice.finish_reason.is_null();
  if (!visible) return "";
  const bool first = !std::exchange(choice.begun, true);
  Json object = Object(request_->chat ? "chat.completion.chunk" : "text_completion");
  std::string events;
  Json prompt_ids;
  if (first && request_->return_token_ids) prompt_ids = prompts_[prompt];
  if (first && request_->chat) {
    Json opening = object;
    opening["choices"] = Json::array({{{"index", index},
                                       {"delta", {{"role", "assistant"}, {"content", ""}}},
                                       {"logprobs", nullptr},
                                       {"finish_reason", nullptr}}});
    if (!prompt_ids.is_null()) opening["prompt_token_ids"] = prompt_ids;
    if (request_->include_usage) opening["usage"] = nullptr;
    events = Event(Dump(opening));
  }
  Json json = ChoiceJson(index, choice, /*delta=*/true);
  if (!request_->chat && !prompt_ids.is_null()) json["prompt_token_ids"] = prompt_ids;
  object["choices"] = Json::array({std::move(json)});
  if (request_->include_usage) object["usage"] = nullptr;
  events += Event(Dump(object));
  for (const SampledToken& token : choice.tokens)
    choice.text_offset += NumCharacters(Name(token.id));
  choice.content.clear();
  choice.calls.clear();
  choice.ids.clear();
  choice.tokens.clear();
  return events;
}

std::string Answer::EndOfStream() const {
  std::string events;
  if (request_->include_usage) {
    Json object = Object(request_->chat ? "chat.completion.chunk" : "text_completion");
    object["choices"] = Json::array();
    object["usage"] = Usage();
    events = Event(Dump(object));
  }
  return events + Event("[DONE]");
}

std::string Answer::FailedStream(const absl::Status& status) {
  return Event(ErrorBody(status)) + Event("[DONE]");
}

void Answer::AddScore(size_t prompt, float score) { scores_[prompt] = score; }

std::string Answer::PoolingBody() const {
  Json object = Object("list");
  Json& data = object["data"] = Json::array();
  for (size_t i = 0; i < scores_.size(); ++i) {
    data.push_back({{"index", i}, {"object", "pooling"}, {"data", Json::array({scores_[i]})}});
  }
  object["usage"] = Usage();
  return Dump(object);
}

std::string Answer::Body() const {
  if (request_->pooling) return PoolingBody();
  Json object = Object(request_->chat ? "chat.completion" : "text_completion");
  Json& choices = object["choices"] = Json::array();
  for (size_t i = 0; i < choices_.size(); ++i) {
    Json json = ChoiceJson(i, choices_[i], /*delta=*/false);
    if (!request_->chat && request_->return_token_ids) {
      json["prompt_token_ids"] = prompts_[i / static_cast<size_t>(request_->n)];
    }
    choices.push_back(std::move(json));
  }
  object["usage"] = Usage();
  if (request_->chat && request_->return_token_ids) object["prompt_token_ids"] = prompts_.front();
  return Dump(object);
}

Json Answer::Object(const char* kind) const {
  return {{"id", head_.id}, {"object", kind}, {"created", head_.created}, {"model", head_.model}};
}

Json Answer::ChoiceJson(size_t index, const Choice& choice, bool delta) const {
  Json json = {{"index", index}};
  if (!request_->chat) {
    json["text"] = choice.content;
  } else {
    json[delta ? "delta" : "message"] = Message(index, choice, delta);
  }
  json["logprobs"] = Logprobs(choice);
  json["finish_reason"] = choice.finish_reason;
  json["stop_reason"] = choice.stop_reason;
  if (request_->return_token_ids) {
    json["token_ids"] = choice.ids;
    if (!choice.finish_reason.is_null()) json["weight_versions"] = choice.spans;
  }
  return json;
}

Json Answer::Message(size_t index, const Choice& choice, bool delta) const {
  Json message = Json::object();
  if (!delta) message["role"] = "assistant";
  if (!choice.content.empty()) {
    message["content"] = choice.content;
  } else if (!delta) {
    message["content"] = choice.calls.empty() ? Json("") : Json();
  }
  if (!delta) message["refusal"] = nullptr;
  if (choice.calls.empty()) return message;
  Json& calls = message["tool_calls"] = Json::array();
  for (size_t i = 0; i < choice.calls.size(); ++i) {
    const size_t number = choice.num_calls - choice.calls.size() + i;
    Json call = Json::object();
    if (delta) call["index"] = number;
    const std::string key = StrCat(head_.id, "/", index, "/", number);
    call["id"] = StrCat("call_", Hex64(Xxh3(key.data(), key.size())));
    call["type"] = "function";
    call["function"] = {{"name", choice.calls[i].name}, {"arguments", choice.calls[i].arguments}};
    calls.push_back(std::move(call));
  }
  return message;
}

Json Answer::Logprobs(const Choice& choice) const {
  if (!request_->logprobs) return nullptr;
  return request_->chat ? ChatLogprobs(choice) : CompletionLogprobs(choice);
}

Json Answer::CompletionLogprobs(const Choice& choice) const {
  Json offsets = Json::array();
  Json logprobs = Json::array();
  Json names = Json::array();
  Json tops = Json::array();
  int64_t offset = choice.text_offset;
  for (const SampledToken& token : choice.tokens) {
    const std::string name = Name(token.id);
    offsets.push_back(offset);
    offset += NumCharacters(name);
    logprobs.push_back(Finite(token.logprob));
    names.push_back(name);
    Json top = {{name, Finite(token.logprob)}};
    for (const TokenLogprob& other : token.top) top[Name(other.id)] = Finite(other.logprob);
    tops.push_back(std::move(top));
  }
  return {{"text_offset", std::move(offsets)},
          {"token_logprobs", std::move(logprobs)},
          {"tokens", std::move(names)},
          {"top_logprobs", std::move(tops)}};
}

Json Answer::ChatLogprobs(const Choice& choice) const {
  const auto entry = [this](int32_t id, float logprob) {
    const std::string name = Name(id);
    return Json{{"token", name}, {"logprob", Finite(logprob)}, {"bytes", Bytes(name)}};
  };
  Json content = Json::array();
  for (const SampledToken& token : choice.tokens) {
    Json json = entry(token.id, token.logprob);
    Json& top = json["top_logprobs"] = Json::array();
    for (const TokenLogprob& other : token.top) top.push_back(entry(other.id, other.logprob));
    content.push_back(std::move(json));
  }
  return {{"content", std::move(content)}};
}

std::string Answer::Name(int32_t id) const {
  return request_->tokens_as_ids ? StrCat("token_id:", id) : TokenText(tokenizer_, id);
}

Json Answer::Usage() const {
  int64_t prompt_tokens = 0;
  for (const std::vector<int32_t>& prompt : prompts_) {
    prompt_tokens += static_cast<int64_t>(prompt.size());
  }
  return {{"prompt_tokens", prompt_tokens},
          {"total_tokens", prompt_tokens + completion_tokens_},
          {"completion_tokens", completion_tokens_}};
}

}  // namespace freshet::openai
