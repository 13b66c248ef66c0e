#include "cli/commands/text_commands.h"

#include <cstdio>
#include <fstream>
#include <iostream>
#include <memory>
#include <string>

#include "absl/time/clock.h"
#include "base/exit_code.h"
#include "base/json_document.h"
#include "base/status_macros.h"
#include "base/str_cat.h"
#include "text/tokenizer.h"

namespace freshet {
namespace {

using OrderedJson = nlohmann::ordered_json;  // templates print names in the order of the file

// Reads JSON strings from stdin, one per line; writes {"ids", "decoded"} lines to stdout.
int Tokenize(const std::string& directory) {
  const absl::StatusOr<std::unique_ptr<Tokenizer>> tokenizer = LoadTokenizer(directory);
  if (!tokenizer.ok()) return FailContent(tokenizer.status());
  std::string line;
  for (int64_t number = 1; std::getline(std::cin, line); ++number) {
    const nlohmann::json text = nlohmann::json::parse(line, nullptr, false);
    if (!text.is_string()) {
      return FailContent(InvalidArgument("stdin:", number, ": not a JSON string"));
    }
    const absl::StatusOr<std::vector<int32_t>> ids = (*tokenizer)->Encode(text.get<std::string>());
    if (!ids.ok()) {
      return FailContent(
          StatusOf(ids.status().code(), "stdin:", number, ": ", Message(ids.status())));
    }
    const OrderedJson row = {{"ids", *ids},
                             {"decoded", (*tokenizer)->Decode(*ids, /*skip_special=*/false)}};
    std::printf("%s\n", row.dump().c_str());
  }
  return kExitDone;
}

struct ChatCommand {
  std::string model;
  std::string messages_file;
  bool add_generation_prompt = false;
  bool continue_final_message = false;
};

// A conversation of the file: {"messages": [...], "tools": [...], "chat_template_kwargs": {...}}.
absl::StatusOr<ChatRequest> ParseConversation(const std::string& line, const std::string& where) {
  FRESHET_RETURN_IF_ERROR(ParseJson(line, where).status());  // bounded, with a clear error
  const OrderedJson json = OrderedJson::parse(line);
  if (!json.is_object() || !json.contains("messages") || !json["messages"].is_array()) {
    return InvalidArgument(where, ": not an object with a list messages");
  }
  ChatRequest request;
  request.messages = json["messages"].dump();
  if (json.contains("tools")) request.tools = json["tools"].dump();
  if (json.contains("chat_template_kwargs")) request.kwargs = json["chat_template_kwargs"].dump();
  return request;
}

// Writes {"text", "ids"} lines to stdout: exactly what transformers' apply_chat_template gives.
absl::Status RenderConversations(const ChatCommand& command) {
  FRESHET_ASSIGN_OR_RETURN(const std::unique_ptr<Tokenizer> tokenizer,
                           LoadTokenizer(command.model));
  std::ifstream file(command.messages_file, std::ios::binary);
  if (!file) return NotFound(command.messages_file, ": cannot be read");
  std::string line;
  for (int64_t number = 1; std::getline(file, line); ++number) {
    const std::string where = StrCat(command.messages_file, ":", number);
    FRESHET_ASSIGN_OR_RETURN(ChatRequest request, ParseConversation(line, where));
    request.add_generation_prompt = command.add_generation_prompt;
    request.continue_final_message = command.continue_final_message;
    request.now = absl::Now();
    const absl::StatusOr<std::string> text = tokenizer->RenderChat(request);
    if (!text.ok()) return StatusOf(text.status().code(), where, ": ", Message(text.status()));
    FRESHET_ASSIGN_OR_RETURN(const std::vector<int32_t> ids, tokenizer->Encode(*text));
    const OrderedJson row = {{"text", *text}, {"ids", ids}};
    std::printf("%s\n", row.dump().c_str());
  }
  return absl::OkStatus();
}

}  // namespace

void AddTextCommands(const Command& app) {
  std::string& model = app.Keep<std::string>();
  const Command tokenize = app.AddCommand("tokenize", "tokenize JSON strings from stdin");
  tokenize.Add("MODEL", model, "directory with tokenizer.json").Required();
  tokenize.OnRun([&model] { return Tokenize(model); });

  ChatCommand& chat = app.Keep<ChatCommand>();
  const Command render =
      app.AddCommand("chat", "talk to a model, or render conversations with its chat template");
  render.Add("MODEL", chat.model, "directory with tokenizer.json").Required();
  render
      .Add("--messages", chat.messages_file,
           "JSON Lines file of conversations: {\"messages\": [...], \"tools\": [...]}")
      .Required();
  render.AddFlag("--add-generation-prompt", chat.add_generation_prompt,
                 "end with the start of an assistant's message");
  render.AddFlag("--continue-final-message", chat.continue_final_message,
                 "end within the last message, for the model to continue");
  render.OnRun([&chat] {
    const absl::Status status = RenderConversations(chat);
    return status.ok() ? kExitDone : FailContent(status);
  });
}

}  // namespace freshet
