#include "rollout/openai/tool_calls.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "absl/status/statusor.h"
#include "base/json_document.h"

namespace freshet::openai {
namespace {

constexpr std::string_view kCallBegin = "<tool_call>";
constexpr std::string_view kCallEnd = "</tool_call>";
constexpr std::string_view kPythonTag = "<|python_tag|>";
constexpr std::string_view kSpace = " \t\r\n";
constexpr std::string_view kSpaceOrSemicolon = " \t\r\n;";
constexpr size_t kMaxCallBytes = 1 << 20;
constexpr size_t kMaxSpaceBytes = 4096;  // examined again with each piece
constexpr int kMaxCallDepth = 64;

bool Contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

size_t SkipAny(std::string_view text, std::string_view skipped, size_t at) {
  return std::min(text.find_first_not_of(skipped, at), text.size());
}

std::string_view Trimmed(std::string_view text) {
  text = text.substr(SkipAny(text, kSpace, 0));
  return text.substr(0, text.find_last_not_of(kSpace) + 1);
}

// Whether more text can make `text` start with `tag`.
bool MayBecome(std::string_view text, std::string_view tag) {
  return text.size() < tag.size() && tag.starts_with(text);
}

// Where the last bytes of `text` may begin `tag`; else its size.
size_t TagMayBegin(std::string_view text, std::string_view tag) {
  size_t at = text.size() - std::min(text.size(), tag.size() - 1);
  while (!tag.starts_with(text.substr(at))) ++at;
  return at;
}

// The members of a valid JSON object as they are written, by their quoted names.
std::map<std::string_view, std::string_view> MembersOf(std::string_view object) {
  std::map<std::string_view, std::string_view> members;
  std::string_view name;
  int depth = 0;
  size_t begin = 1;
  for (size_t i = 0; i < object.size(); ++i) {
    const char c = object[i];
    if (c == '"') {
      for (++i; object[i] != '"'; ++i) i += object[i] == '\\' ? 1 : 0;
    } else if (depth == 1 && (c == ':' || c == ',' || c == '}')) {
      const std::string_view written = Trimmed(object.substr(begin, i - begin));
      if (c == ':') name = written;
      if (c != ':') members.emplace(name, written);
      begin = i + 1;
    }
    if (c == '{' || c == '[') ++depth;
    if (c == '}' || c == ']') --depth;
  }
  return members;
}

std::optional<ToolCall> ReadCall(std::string_view object, ToolCallFormat format) {
  const absl::StatusOr<nlohmann::json> json =
      ParseJson(object, "tool call", {.max_depth = kMaxCallDepth});
  if (!json.ok()) return std::nullopt;
  const auto name = json->find("name");
  if (name == json->end() || !name->is_string() || name->get_ref<const std::string&>().empty()) {
    return std::nullopt;
  }
  const auto members = MembersOf(object);
  auto arguments = members.find("\"arguments\"");
  if (arguments == members.end() && format == ToolCallFormat::kLlama3Json) {
    arguments = members.find("\"parameters\"");
  }
  if (arguments == members.end()) return std::nullopt;
  return ToolCall{name->get<std::string>(), std::string(arguments->second)};
}

}  // namespace

ToolCallChoice DetectToolCallFormat(std::string_view chat_template,
                                    const std::function<bool(std::string_view)>& is_token) {
  if (!Contains(chat_template, "tools")) {
    return {ToolCallFormat::kNone, "the chat template does not mention tools"};
  }
  if (Contains(chat_template, "<function=")) {
    return {ToolCallFormat::kNone, "calls in XML, which the chat template shows, are not parsed"};
  }
  if (Contains(chat_template, "[TOOL_CALLS]")) {
    return {ToolCallFormat::kNone,
            "calls after [TOOL_CALLS], which the chat template shows, are not parsed"};
  }
  if (Contains(chat_template, kCallBegin)) {
    return {ToolCallFormat::kHermes, "the chat template shows <tool_call>"};
  }
  if (Contains(chat_template, kPythonTag)) {
    return {ToolCallFormat::kLlama3Json, "the chat template shows <|python_tag|>"};
  }
  if (Contains(chat_template, "\"parameters\": ") && is_token(kPythonTag)) {
    return {ToolCallFormat::kLlama3Json,
            "the chat template shows \"parameters\", and the vocabulary has <|python_tag|>"};
  }
  if (is_token(kCallBegin) && is_token(kCallEnd)) {
    return {ToolCallFormat::kHermes, "the vocabulary has <tool_call>"};
  }
  return {ToolCallFormat::kNone,
          "neither the chat template nor the vocabulary shows a known format"};
}

ToolCallParser::ToolCallParser(ToolCallFormat format)
    : format_(format), state_(format == ToolCallFormat::kNone ? State::kPlain : State::kOutside) {}

ToolCallParser::Parsed ToolCallParser::Push(std::string_view piece) {
  held_ += piece;
  return Run(/*ended=*/false);
}

ToolCallParser::Parsed ToolCallParser::Finish() { return Run(/*ended=*/true); }

ToolCallParser::Parsed ToolCallParser::Run(bool ended) {
  const bool hermes = format_ == ToolCallFormat::kHermes;
  Parsed parsed;
  Step step = Step::kAgain;
  while (step == Step::kAgain) {
    switch (state_) {
      case State::kOutside:
        step = hermes ? FindHermesCall(ended, parsed) : FindLlamaCall(ended);
        break;
      case State::kObject:
        step = ScanObject(ended, parsed);
        break;
      case State::kAfter:
        step = hermes ? EndHermesCall(ended, parsed) : EndCall(object_end_, parsed);
        break;
      case State::kPlain:
        Release(held_.size(), parsed);
        step = Step::kWait;
        break;
    }
  }
  held_.erase(0, begin_);
  object_ -= std::min(object_, begin_);
  object_end_ -= std::min(object_end_, begin_);
  next_ -= std::min(next_, begin_);
  begin_ = 0;
  return parsed;
}

ToolCallParser::Step ToolCallParser::FindHermesCall(bool ended, Parsed& parsed) {
  const std::string_view text = held_;
  if (after_call_) {
    const size_t at = SkipAny(text, kSpace, begin_);
    const std::string_view rest = text.substr(at);
    if (at - begin_ < kMaxSpaceBytes) {
      if (rest.starts_with(kCallBegin)) return BeginObject(at + kCallBegin.size());
      if (!ended && MayBecome(rest, kCallBegin)) return Step::kWait;
      if (rest.empty()) begin_ = at;
    }
    after_call_ = false;
  }
  const size_t at = text.find(kCallBegin, begin_);
  if (at == text.npos) {
    Release(ended ? text.size() : begin_ + TagMayBegin(text.substr(begin_), kCallBegin), parsed);
    return Step::kWait;
  }
  Release(at, parsed);
  return BeginObject(at + kCallBegin.size());
}

ToolCallParser::Step ToolCallParser::FindLlamaCall(bool ended) {
  const std::string_view text = held_;
  size_t at = SkipAny(text, after_call_ ? kSpaceOrSemicolon : kSpace, begin_);
  if (text.substr(at).starts_with(kPythonTag)) {
    at = SkipAny(text, kSpace, at + kPythonTag.size());
  }
  const std::string_view rest = text.substr(at);
  if (at - begin_ < kMaxSpaceBytes) {
    if (rest.starts_with('{')) return BeginObject(at);
    if (!ended && MayBecome(rest, kPythonTag)) return Step::kWait;
    if (rest.empty() && after_call_) begin_ = at;
  }
  state_ = State::kPlain;
  return Step::kAgain;
}

ToolCallParser::Step ToolCallParser::BeginObject(size_t at) {
  next_ = at;
  depth_ = 0;
  in_string_ = false;
  escaped_ = false;
  opened_ = false;
  state_ = State::kObject;
  return Step::kAgain;
}

ToolCallParser::Step ToolCallParser::ScanObject(bool ended, Parsed& parsed) {
  for (; next_ < held_.size(); ++next_) {
    const char c = held_[next_];
    if (next_ - begin_ >= kMaxCallBytes) return Reject(parsed);
    if (in_string_) {
      if (c == '"' && !escaped_) in_string_ = false;
      escaped_ = c == '\\' && !escaped_;
      continue;
    }
    if (Contains(kSpace, {&c, 1})) continue;
    if (depth_ == 0 && c != '{') return Reject(parsed);
    if (std::exchange(opened_, depth_ == 0) && c != '"') return Reject(parsed);
    if (depth_ == 0) object_ = next_;
    if (c == '"') in_string_ = true;
    if ((c == '{' || c == '[') && ++depth_ > kMaxCallDepth) return Reject(parsed);
    if ((c == '}' || c == ']') && --depth_ == 0) {
      object_end_ = ++next_;
      state_ = State::kAfter;
      return Step::kAgain;
    }
  }
  return ended ? Reject(parsed) : Step::kWait;
}

ToolCallParser::Step ToolCallParser::EndHermesCall(bool ended, Parsed& parsed) {
  const std::string_view text = held_;
  const size_t at = SkipAny(text, kSpace, object_end_);
  const std::string_view rest = text.substr(at);
  if (at - object_end_ >= kMaxSpaceBytes) return Reject(parsed);
  if (rest.starts_with(kCallEnd)) return EndCall(at + kCallEnd.size(), parsed);
  if (ended && rest.empty()) return EndCall(at, parsed);
  return !ended && MayBecome(rest, kCallEnd) ? Step::kWait : Reject(parsed);
}

ToolCallParser::Step ToolCallParser::EndCall(size_t end, Parsed& parsed) {
  const std::string_view object = std::string_view(held_).substr(object_, object_end_ - object_);
  std::optional<ToolCall> call = ReadCall(object, format_);
  next_ = end;
  if (!call.has_value()) return Reject(parsed);
  parsed.calls.push_back(*std::move(call));
  begin_ = end;
  after_call_ = true;
  state_ = State::kOutside;
  return Step::kAgain;
}

ToolCallParser::Step ToolCallParser::Reject(Parsed& parsed) {
  Release(next_, parsed);
  after_call_ = false;
  state_ = format_ == ToolCallFormat::kHermes ? State::kOutside : State::kPlain;
  return Step::kAgain;
}

void ToolCallParser::Release(size_t end, Parsed& parsed) {
  parsed.content.append(held_, begin_, end - begin_);
  begin_ = end;
}

}  // namespace freshet::openai
