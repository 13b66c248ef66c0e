#include "model/token_decoder.h"

#include <optional>
#include <string_view>
#include <utility>

#include "base/utf8.h"

namespace freshet {
namespace {

constexpr char kReplacementChar[] = "\xEF\xBF\xBD";  // U+FFFD

std::optional<int> HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return std::nullopt;
}

// Decodes a token "<0xHH>".
std::optional<char> ByteToken(std::string_view token) {
  if (token.size() != 6 || token.substr(0, 3) != "<0x" || token[5] != '>') return std::nullopt;
  const std::optional<int> high = HexDigit(token[3]);
  const std::optional<int> low = HexDigit(token[4]);
  if (!high || !low) return std::nullopt;
  return static_cast<char>(*high * 16 + *low);
}

std::vector<std::string> JoinBytes(std::vector<std::string> tokens) {
  std::vector<std::string> joined;
  std::string bytes;
  const auto flush = [&] {
    if (bytes.empty()) return;
    if (FindInvalidUtf8(bytes) == std::string_view::npos) {
      joined.push_back(std::move(bytes));
    } else {
      for (size_t i = 0; i < bytes.size(); ++i) joined.emplace_back(kReplacementChar);
    }
    bytes.clear();
  };
  for (std::string& token : tokens) {
    if (const std::optional<char> byte = ByteToken(token)) {
      bytes.push_back(*byte);
      continue;
    }
    flush();
    joined.push_back(std::move(token));
  }
  flush();
  return joined;
}

std::vector<std::string> Fuse(const std::vector<std::string>& tokens) {
  std::string all;
  for (const std::string& token : tokens) all += token;
  return {std::move(all)};
}

std::string Strip(std::string_view token, const DecodeStep& step) {
  const size_t unit = step.content.size();
  for (int64_t i = 0; i < step.start && token.substr(0, unit) == step.content; ++i) {
    token.remove_prefix(unit);
  }
  for (int64_t i = 0;
       i < step.stop && token.size() >= unit && token.substr(token.size() - unit) == step.content;
       ++i) {
    token.remove_suffix(unit);
  }
  return std::string(token);
}

}  // namespace

std::string ReplaceAll(const std::string& text, const std::string& pattern,
                       const std::string& content) {
  std::string replaced;
  size_t done = 0;
  for (size_t at = text.find(pattern); at != std::string::npos; at = text.find(pattern, done)) {
    replaced.append(text, done, at - done);
    replaced += content;
    done = at + pattern.size();
  }
  replaced.append(text, done);
  return replaced;
}

std::string DecodeTokens(std::vector<std::string> tokens, const std::vector<DecodeStep>& steps) {
  for (const DecodeStep& step : steps) {
    switch (step.kind) {
      case DecodeStep::Kind::kReplace:
        for (std::string& token : tokens) token = ReplaceAll(token, step.pattern, step.content);
        break;
      case DecodeStep::Kind::kByteFallback:
        tokens = JoinBytes(std::move(tokens));
        break;
      case DecodeStep::Kind::kFuse:
        tokens = Fuse(tokens);
        break;
      case DecodeStep::Kind::kStrip:
        for (std::string& token : tokens) token = Strip(token, step);
        break;
      case DecodeStep::Kind::kMetaspace:
        for (size_t i = 0; i < tokens.size(); ++i) {
          const bool strip = i == 0 && step.strip_first;
          tokens[i] = ReplaceAll(tokens[i], step.pattern, strip ? "" : " ");
        }
        break;
    }
  }
  std::string text;
  for (const std::string& token : tokens) text += token;
  return text;
}

}  // namespace freshet
