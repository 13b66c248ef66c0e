#include "services/runtime/utf8.h"

#include <algorithm>
#include <cstddef>

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

}  // namespace freshet::runtime
