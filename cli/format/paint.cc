#include "cli/format/paint.h"

#include <algorithm>

namespace freshet {

std::string Printable(std::string_view text) {
  std::string safe;
  safe.reserve(text.size());
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if ((byte < 0x20 && c != '\n' && c != '\t') || byte == 0x7f) {
      safe += "\ufffd";
    } else {
      safe += c;
    }
  }
  return safe;
}

std::string OneLine(std::string_view text) {
  std::string line = Printable(text);
  std::replace_if(
      line.begin(), line.end(), [](char c) { return c == '\n' || c == '\t'; }, ' ');
  return line;
}

}  // namespace freshet
