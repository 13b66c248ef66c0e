#include "base/text_template.h"

#include <algorithm>
#include <utility>

#include "base/str_cat.h"

namespace freshet {
namespace {

constexpr size_t kMaxTemplateBytes = 1 << 20;

bool IsDigit(char c) { return c >= '0' && c <= '9'; }
bool IsNameChar(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || IsDigit(c) || c == '_';
}

// Name of the placeholder that opens at `open`; empty if there is no placeholder.
std::string_view NameAt(std::string_view text, size_t open) {
  size_t close = open + 1;
  while (close < text.size() && IsNameChar(text[close])) ++close;
  if (close == open + 1 || close >= text.size() || text[close] != '}') return {};
  return IsDigit(text[open + 1]) ? std::string_view() : text.substr(open + 1, close - open - 1);
}

}  // namespace

void TextTemplate::AddLiteral(std::string_view text) {
  if (pieces_.empty() || pieces_.back().is_field) pieces_.push_back({false, ""});
  pieces_.back().text += text;
}

void TextTemplate::AddField(std::string name) {
  if (std::find(fields_.begin(), fields_.end(), name) == fields_.end()) fields_.push_back(name);
  pieces_.push_back({true, std::move(name)});
}

absl::StatusOr<TextTemplate> TextTemplate::Parse(std::string_view text) {
  if (text.size() > kMaxTemplateBytes) {
    return InvalidArgument("template has ", text.size(), " bytes, more than ", kMaxTemplateBytes);
  }
  TextTemplate result;
  size_t i = 0;
  while (i < text.size()) {
    if (text[i] != '{') {
      const size_t end = std::min(text.find('{', i), text.size());
      result.AddLiteral(text.substr(i, end - i));
      i = end;
      continue;
    }
    const std::string_view name = NameAt(text, i);
    if (!name.empty()) {
      result.AddField(std::string(name));
      i += name.size() + 2;
      continue;
    }
    const bool doubled = i + 1 < text.size() && text[i + 1] == '{';
    const std::string_view quoted = doubled ? NameAt(text, i + 1) : std::string_view();
    const size_t end = i + quoted.size() + 3;  // of "{{name}"
    if (!quoted.empty() && end < text.size() && text[end] == '}') {
      result.AddLiteral(text.substr(i + 1, quoted.size() + 2));
      i = end + 1;
      continue;
    }
    result.AddLiteral("{");
    ++i;
  }
  return result;
}

absl::StatusOr<std::string> TextTemplate::Render(
    const std::map<std::string, std::string>& values) const {
  std::string result;
  for (const Piece& piece : pieces_) {
    if (!piece.is_field) {
      result += piece.text;
      continue;
    }
    const auto it = values.find(piece.text);
    if (it == values.end()) return NotFound("field '", piece.text, "' is missing");
    result += it->second;
  }
  return result;
}

}  // namespace freshet
