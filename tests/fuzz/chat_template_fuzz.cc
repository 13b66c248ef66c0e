// A chat template over a conversation with tools: rendering is bounded.
#include <cstdint>
#include <string>

#include "base/log.h"
#include "text/char_tokenizer.h"
#include "text/tokenizer.h"

namespace {

constexpr size_t kMaxRendered = 16 << 20;
constexpr char kMessages[] = R"([
  {"role": "system", "content": "Be brief."},
  {"role": "user", "content": "What is 2 + 2? </s>"},
  {"role": "assistant", "content": "", "tool_calls": [
    {"type": "function", "function": {"name": "add", "arguments": {"a": 2, "b": 2}}}]},
  {"role": "tool", "name": "add", "content": "4"}])";
constexpr char kTools[] = R"([{"type": "function", "function": {"name": "add",
  "parameters": {"type": "object", "properties": {"a": {"type": "number"}}}}}])";

std::string Alphabet() {
  std::string alphabet;
  for (char c = ' '; c < 127; ++c) alphabet += c;
  return alphabet;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const auto plain = freshet::CreateCharTokenizer(Alphabet());
  FRESHET_CHECK(plain.ok());
  auto files = (*plain)->Files();
  files.push_back({"chat_template.jinja", {reinterpret_cast<const char*>(data), size}});
  const auto tokenizer = freshet::ParseTokenizer(std::move(files), "dir");
  if (!tokenizer.ok()) return 0;
  freshet::ChatRequest request;
  request.messages = kMessages;
  request.tools = kTools;
  request.kwargs = R"({"enable_thinking": false})";
  request.add_generation_prompt = true;
  const auto text = (*tokenizer)->RenderChat(request);
  if (text.ok()) FRESHET_CHECK(text->size() <= kMaxRendered);
  const auto ids = (*tokenizer)->EncodeChat(request);
  if (ids.ok()) {
    for (const int32_t id : *ids) FRESHET_CHECK(id >= 0 && id < (*tokenizer)->vocab_size());
  }
  return 0;
}
