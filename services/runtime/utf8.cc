#include "services/runtime/utf8.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "model/utf8.h"

namespace freshet::runtime {

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

}  // namespace freshet::runtime
