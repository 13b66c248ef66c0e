#include "text/row_tokens.h"

#include "base/str_cat.h"
#include "nlohmann/json.hpp"

namespace freshet {

namespace {

using Json = nlohmann::ordered_json;  // templates print names in the order of the file

std::string TemplateKwargs(const job::v1::Chat& chat) {
  Json kwargs = Json::object();
  for (const auto& [name, value] : chat.template_kwargs()) {
    const Json parsed = Json::parse(value, nullptr, /*allow_exceptions=*/false);
    kwargs[name] = parsed.is_discarded() ? Json(value) : parsed;
  }
  return kwargs.dump();
}

}  // namespace

absl::StatusOr<std::vector<int32_t>> EncodePrompt(const Tokenizer& tokenizer,
                                                  const job::v1::Dataset& dataset,
                                                  const std::string& prompt) {
  if (!dataset.has_chat()) return tokenizer.EncodeWithSpecial(prompt);
  const Json json = Json::parse(prompt, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || !json.contains("messages")) {
    return InvalidArgument("the prompt is no conversation");
  }
  ChatRequest request;
  request.messages = json["messages"].dump();
  if (json.contains("tools")) request.tools = json["tools"].dump();
  request.kwargs = TemplateKwargs(dataset.chat());
  request.add_generation_prompt = true;
  return tokenizer.EncodeChat(request);
}

absl::StatusOr<std::vector<int32_t>> EncodeAnswer(
    const Tokenizer& tokenizer, const std::map<std::string, std::string>& attributes,
    const std::string& where) {
  const auto answer = attributes.find("answer");
  if (answer == attributes.end()) {
    return InvalidArgument(where, ": warmup.sft needs an answer; name its field in dataset.answer");
  }
  absl::StatusOr<std::vector<int32_t>> ids = tokenizer.Encode(answer->second);
  if (!ids.ok()) return InvalidArgument(where, ": answer: ", Message(ids.status()));
  if (tokenizer.eos_id().has_value()) ids->push_back(*tokenizer.eos_id());
  return ids;
}

}  // namespace freshet
