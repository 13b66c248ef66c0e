#include "controller/autoscale/pool_bounds.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <optional>
#include <string_view>

#include "base/str_cat.h"
#include "controller/cluster/pool_scaler.h"

namespace freshet {
namespace {

constexpr size_t kMaxName = 63;

bool IsPoolName(std::string_view name) {
  return !name.empty() && name.size() <= kMaxName &&
         std::all_of(name.begin(), name.end(), [](char c) {
           return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-' || c == '_' ||
                  c == '.';
         });
}

std::optional<int32_t> ParseCount(std::string_view text) {
  int32_t value = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || rest != end || value < 0 || value > kMaxReplicas) return std::nullopt;
  return value;
}

}  // namespace

absl::StatusOr<std::map<std::string, PoolBounds>> ParsePoolBounds(
    const std::vector<std::string>& texts) {
  std::map<std::string, PoolBounds> bounds;
  for (const std::string& text : texts) {
    const std::string shown = text.substr(0, 80);
    const size_t equals = text.find('=');
    const size_t dots = text.find("..", equals == std::string::npos ? 0 : equals);
    if (equals == std::string::npos || dots == std::string::npos) {
      return InvalidArgument("\"", shown, "\" is not POOL=MIN..MAX, such as default=1..8");
    }
    const std::string pool = text.substr(0, equals);
    if (!IsPoolName(pool)) {
      return InvalidArgument("\"", shown, "\": \"", pool.substr(0, 40),
                             "\" is not a valid pool name");
    }
    const std::string_view numbers(text);
    const auto least = ParseCount(numbers.substr(equals + 1, dots - equals - 1));
    const auto most = ParseCount(numbers.substr(dots + 2));
    if (!least.has_value() || !most.has_value() || *most < 1 || *least > *most) {
      return InvalidArgument(
          "\"", shown,
          "\": the bounds must be numbers with 0 <= MIN <= MAX, and 1 <= MAX <= ", kMaxReplicas);
    }
    if (!bounds.emplace(pool, PoolBounds{*least, *most}).second) {
      return InvalidArgument("\"", shown, "\": pool ", pool, " is named twice");
    }
  }
  return bounds;
}

}  // namespace freshet
