#include "text/row_tokens.h"

#include "base/json_document.h"
#include "base/status_macros.h"
#include "base/str_cat.h"

namespace freshet {

namespace {

using OrderedJson = nlohmann::ordered_json;  // templates print names in the order of the file

std::string TemplateKwargs(const job::v1::Chat& chat) {
  OrderedJson kwargs = OrderedJson::object();
  for (const auto& [name, value] : chat.template_kwargs()) {
    kwargs[name] = ParseOrderedJson(value, name).value_or(OrderedJson(value));
  }
  return kwargs.dump();
}

}  // namespace

absl::StatusOr<ChatRequest> MakeConversation(const job::v1::Chat& chat, const std::string& prompt) {
  FRESHET_ASSIGN_OR_RETURN(const OrderedJson json, ParseOrderedJson(prompt, "the prompt"));
  if (!json.is_object() || !json.contains("messages")) {
    return InvalidArgument("the prompt is not a conversation");
  }
  ChatRequest request;
  request.messages = json["messages"].dump();
  if (json.contains("tools")) request.tools = json["tools"].dump();
  request.kwargs = TemplateKwargs(chat);
  request.add_generation_prompt = true;
  return request;
}

absl::StatusOr<std::vector<int32_t>> EncodePrompt(const Tokenizer& tokenizer,
                                                  const job::v1::Dataset& dataset,
                                                  const std::string& prompt) {
  if (!dataset.has_chat()) return tokenizer.EncodeWithSpecial(prompt);
  FRESHET_ASSIGN_OR_RETURN(const ChatRequest request, MakeConversation(dataset.chat(), prompt));
  return tokenizer.EncodeChat(request);
}

absl::StatusOr<std::vector<int32_t>> EncodeAnswer(
    const Tokenizer& tokenizer, const job::v1::Dataset& dataset,
    const std::map<std::string, std::string>& attributes, const std::string& where) {
  const auto answer = attributes.find("answer");
  if (answer == attributes.end()) {
    return InvalidArgument(where, ": warmup.sft needs an answer; name its field in dataset.answer");
  }
  absl::StatusOr<std::vector<int32_t>> ids = tokenizer.Encode(
      answer->second, dataset.has_chat() ? SpecialTokens::kPlain : SpecialTokens::kRecognized);
  if (!ids.ok()) return InvalidArgument(where, ": answer: ", Message(ids.status()));
  if (tokenizer.eos_id().has_value()) ids->push_back(*tokenizer.eos_id());
  return ids;
}

}  // namespace freshet
