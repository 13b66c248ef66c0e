// A body of OpenAI's API: what is accepted is within the limits, and its conversation is rendered
// or refused.
#include <cstdint>
#include <memory>
#include <string_view>

#include "base/json_document.h"
#include "base/log.h"
#include "rollout/openai/api_request.h"
#include "text/char_tokenizer.h"
#include "text/tokenizer.h"

namespace freshet::openai {
namespace {

constexpr char kTemplate[] =
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}"
    "{% for c in m.tool_calls or [] %}{{ c.function.name }}{{ c.function.arguments | tojson }}"
    "{% endfor %}{% endfor %}{{ tools | tojson }}";

std::unique_ptr<Tokenizer> MakeTokenizer() {
  const auto plain = CreateCharTokenizer("abc <>");
  FRESHET_CHECK(plain.ok());
  auto files = (*plain)->Files();
  files.push_back({"chat_template.jinja", kTemplate});
  auto tokenizer = ParseTokenizer(std::move(files), "dir");
  FRESHET_CHECK(tokenizer.ok());
  return *std::move(tokenizer);
}

void CheckLimits(const ApiRequest& request) {
  FRESHET_CHECK(request.n >= 1 && request.n <= kMaxSamples);
  FRESHET_CHECK(request.prompts.size() <= kMaxPrompts);
  FRESHET_CHECK(request.stop.size() <= kMaxStopStrings);
  FRESHET_CHECK(request.stop_token_ids.size() <= kMaxStopIds);
  FRESHET_CHECK(request.sampling.top_logprobs <= kMaxTopLogprobs);
  FRESHET_CHECK(!request.max_tokens.has_value() || *request.max_tokens >= 0);
  for (const ApiPrompt& prompt : request.prompts) {
    for (const int32_t id : prompt.ids) FRESHET_CHECK(id >= 0);
  }
}

void Parse(std::string_view body) {
  static const std::unique_ptr<Tokenizer> tokenizer = MakeTokenizer();
  const auto completion = ParseCompletionRequest(body, {});
  if (completion.ok()) CheckLimits(*completion);
  const auto pooling = ParsePoolingRequest(body);
  if (pooling.ok()) CheckLimits(*pooling);
  const auto chat = ParseChatRequest(body, {});
  if (!chat.ok()) return;
  CheckLimits(*chat);
  const auto messages = ParseJson(chat->conversation.messages, "messages");
  FRESHET_CHECK(messages.ok() && messages->is_array() && !messages->empty());
  tokenizer->RenderChat(chat->conversation).status().IgnoreError();
}

}  // namespace
}  // namespace freshet::openai

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  freshet::openai::Parse({reinterpret_cast<const char*>(data), size});
  return 0;
}
