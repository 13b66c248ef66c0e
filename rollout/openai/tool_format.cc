#include "rollout/openai/tool_format.h"

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/json_document.h"

namespace freshet::openai {
namespace {

// The chat templates of a tokenizer, "" without one.
std::string ChatTemplates(const Tokenizer& tokenizer) {
  std::string in_config;
  for (const TokenizerFile& file : tokenizer.Files()) {
    if (file.name == "chat_template.jinja") return file.content;
    if (file.name != "tokenizer_config.json") continue;
    const absl::StatusOr<nlohmann::json> config = ParseJson(file.content, file.name);
    if (!config.ok() || !config->is_object()) continue;
    const nlohmann::json templates = config->value("chat_template", nlohmann::json());
    in_config = templates.is_string() ? templates.get<std::string>() : templates.dump();
  }
  return in_config;
}

}  // namespace

ToolCallChoice ToolFormatOf(const Tokenizer& tokenizer) {
  const auto is_token = [&tokenizer](std::string_view text) {
    const absl::StatusOr<std::vector<int32_t>> ids = tokenizer.Encode(text);
    return ids.ok() && ids->size() == 1;
  };
  return DetectToolCallFormat(ChatTemplates(tokenizer), is_token);
}

}  // namespace freshet::openai
