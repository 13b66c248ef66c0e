#include "job/config_error.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "base/str_cat.h"

namespace freshet {
namespace {

// Longer words are not matched, which bounds the cost of the edit distance.
constexpr size_t kLongestWord = 64;
constexpr size_t kLongestPath = 120;

std::string Folded(std::string_view word) {
  std::string folded = absl::AsciiStrToLower({word.data(), word.size()});
  std::replace(folded.begin(), folded.end(), '-', '_');
  return folded;
}

// Optimal string alignment distance.
size_t EditDistance(std::string_view a, std::string_view b) {
  std::vector<std::vector<size_t>> d(a.size() + 1, std::vector<size_t>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i) d[i][0] = i;
  for (size_t j = 0; j <= b.size(); ++j) d[0][j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t change = a[i - 1] == b[j - 1] ? 0 : 1;
      d[i][j] = std::min({d[i - 1][j] + 1, d[i][j - 1] + 1, d[i - 1][j - 1] + change});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        d[i][j] = std::min(d[i][j], d[i - 2][j - 2] + 1);
      }
    }
  }
  return d[a.size()][b.size()];
}

}  // namespace

ConfigError KeyPlaces::AtLine(int line, std::string path, std::string message) const {
  std::string block = BlockOf(path);
  const bool from_set = line == kFromSet;
  return {from_set ? "--set" : file_, from_set ? 0 : line, std::move(path), std::move(message),
          std::move(block)};
}

std::string KeyPlaces::BlockOf(const std::string& path) const {
  for (std::string at = own_.empty() ? "" : path; !at.empty();) {
    if (own_.contains(at)) return block_;
    const size_t dot = at.rfind('.');
    at.resize(dot == std::string::npos ? 0 : dot);
  }
  return "";
}

ConfigError KeyPlaces::At(const std::string& path, std::string message) const {
  for (std::string at = path; !at.empty();) {
    const auto found = lines_.find(at);
    if (found != lines_.end()) {
      return AtLine(found->second, path, std::move(message));
    }
    const size_t dot = at.rfind('.');
    at.resize(dot == std::string::npos ? 0 : dot);
  }
  return AtLine(0, path, std::move(message));
}

std::string FormatConfigError(const ConfigError& error) {
  std::string text = error.file;
  if (error.line > 0) {
    text += StrCat(":", error.line);
  }
  const std::string dot = error.block.empty() || error.path.empty() ? "" : ".";
  const std::string path = StrCat(error.block, dot, error.path);
  if (!path.empty()) {
    text += StrCat(": ", Excerpt(path, kLongestPath));
  }
  return StrCat(text, ": ", error.message);
}

std::string FormatConfigErrors(const std::vector<ConfigError>& errors, size_t limit) {
  std::string text;
  for (size_t i = 0; i < std::min(limit, errors.size()); ++i) {
    text += FormatConfigError(errors[i]) + "\n";
  }
  if (errors.size() > limit) {
    text += StrCat("and ", errors.size() - limit, " more\n");
  }
  return text;
}

void SortConfigErrors(std::vector<ConfigError>& errors) {
  const auto rank = [](const ConfigError& error) {
    return error.line > 0 ? 0 : error.file == "--set" ? 1 : 2;
  };
  std::stable_sort(errors.begin(), errors.end(), [&](const ConfigError& a, const ConfigError& b) {
    return rank(a) != rank(b) ? rank(a) < rank(b) : a.line < b.line;
  });
}

std::string NearestName(std::string_view word, const std::vector<std::string>& names) {
  if (word.empty() || word.size() > kLongestWord) {
    return "";
  }
  const std::string folded = Folded(word);
  std::string nearest;
  size_t best = std::max<size_t>(1, std::min<size_t>(4, word.size() / 3)) + 1;
  for (const std::string& name : names) {
    const size_t distance = EditDistance(folded, Folded(name));
    if (distance < best) {
      best = distance;
      nearest = name;
    }
  }
  return nearest;
}

std::string Excerpt(std::string_view text, size_t max_bytes) {
  const bool cut = text.size() > max_bytes;
  if (cut) {
    size_t end = max_bytes;
    // Do not cut inside a UTF-8 character.
    while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
    text = text.substr(0, end);
  }
  std::string excerpt(text);
  for (char& c : excerpt) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7F) c = '?';
  }
  return cut ? excerpt + "..." : excerpt;
}

}  // namespace freshet
