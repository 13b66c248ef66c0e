#include "services/http/token_file.h"

#include <algorithm>
#include <cstdint>

#include "base/file.h"
#include "base/str_cat.h"

namespace freshet {
namespace {

constexpr uint64_t kMaxTokenBytes = 64 << 10;

}  // namespace

absl::StatusOr<std::string> ReadToken(const std::string& file) {
  const absl::StatusOr<std::string> text = ReadFile(file, kMaxTokenBytes);
  if (!text.ok()) return FailedPrecondition("the token cannot be read: ", Message(text.status()));
  std::string token = *text;
  while (!token.empty() && (token.back() == '\n' || token.back() == '\r')) token.pop_back();
  const bool printable =
      std::all_of(token.begin(), token.end(), [](char c) { return c > ' ' && c < 0x7F; });
  if (token.empty() || !printable) {
    return FailedPrecondition(file,
                              " holds no token; want one line of printable ASCII without spaces");
  }
  return token;
}

}  // namespace freshet
