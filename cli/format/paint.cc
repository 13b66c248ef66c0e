#include "cli/format/paint.h"

#include <algorithm>

#include "base/str_cat.h"

namespace freshet {

std::string Paint(std::string_view text, const char* code, bool color) {
  if (!color || text.empty()) return std::string(text);
  return StrCat("\x1b[", code, "m", text, "\x1b[0m");
}

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
