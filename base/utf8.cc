#include "base/utf8.h"

#include <algorithm>
#include <cstdio>
#include <utility>

#include "base/str_cat.h"

namespace freshet {

Utf8Char DecodeUtf8(std::string_view text, size_t at) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(at);
  if (lead < 0x80) return {lead, 1};
  size_t size = 0;
  char32_t code = 0;
  char32_t smallest = 0;  // smaller codes are overlong
  if (lead >= 0xC2 && lead <= 0xDF) {
    size = 2;
    code = lead & 0x1FU;
    smallest = 0x80;
  } else if (lead >= 0xE0 && lead <= 0xEF) {
    size = 3;
    code = lead & 0x0FU;
    smallest = 0x800;
  } else if (lead >= 0xF0 && lead <= 0xF4) {
    size = 4;
    code = lead & 0x07U;
    smallest = 0x10000;
  } else {
    return {};
  }
  if (text.size() - at < size) return {};
  for (size_t i = 1; i < size; ++i) {
    if ((byte(at + i) & 0xC0U) != 0x80U) return {};
    code = (code << 6) | (byte(at + i) & 0x3FU);
  }
  const bool surrogate = code >= 0xD800 && code <= 0xDFFF;
  if (code < smallest || code > 0x10FFFF || surrogate) return {};
  return {code, size};
}

std::vector<std::string> Utf8Characters(std::string_view text) {
  std::vector<std::string> characters;
  for (const char c : text) {
    const bool continues = (static_cast<unsigned char>(c) & 0xC0) == 0x80;
    if (!continues || characters.empty()) characters.emplace_back();
    characters.back() += c;
  }
  return characters;
}

std::string DescribeChar(char32_t code) {
  char hex[16];
  std::snprintf(hex, sizeof(hex), "U+%04X", static_cast<unsigned>(code));
  if (code <= 0x20 || code >= 0x7F) return hex;
  return StrCat("'", std::string(1, static_cast<char>(code)), "' (", hex, ")");
}

std::string ValidUtf8(std::string text) {
  for (size_t at = 0; at < text.size();) {
    const size_t size = DecodeUtf8(text, at).size;
    if (size == 0) text[at] = '?';
    at += std::max<size_t>(size, 1);
  }
  return text;
}

std::string ValidUtf8(std::string text, size_t max_bytes) {
  text = ValidUtf8(std::move(text));
  if (text.size() <= max_bytes) return text;
  while (max_bytes > 0 && (static_cast<unsigned char>(text[max_bytes]) & 0xC0) == 0x80) --max_bytes;
  text.resize(max_bytes);
  return text;
}

}  // namespace freshet
