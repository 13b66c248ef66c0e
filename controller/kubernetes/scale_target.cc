#include "controller/kubernetes/scale_target.h"

#include <algorithm>
#include <charconv>
#include <optional>

#include "base/status_macros.h"
#include "base/str_cat.h"
#include "controller/cluster/pool_scaler.h"

namespace freshet {
namespace {

constexpr size_t kMaxName = 253;

bool IsAlnum(char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'); }

absl::Status BadForm(const std::string& text) {
  return InvalidArgument(
      "\"", text.substr(0, 120),
      "\" is not KEY=RESOURCE/NAME, such as rollout/default=deployments/engines, "
      "with KEY rollout/POOL, reward or env, and RESOURCE deployments or "
      "leaderworkersets; NAME of the latter may end with *SIZE, 1 to ",
      kMaxGroupSize);
}

// Removes "*SIZE" from a name. Returns 1 without it, none if SIZE is invalid.
std::optional<int32_t> TakeSize(std::string& name) {
  const size_t star = name.find('*');
  if (star == std::string::npos) return 1;
  int32_t size = 0;
  const char* const end = name.data() + name.size();
  const auto [rest, error] = std::from_chars(name.data() + star + 1, end, size);
  if (error != std::errc() || rest != end || size < 1 || size > kMaxGroupSize) return std::nullopt;
  name.resize(star);
  return size;
}

absl::StatusOr<std::string> ParseKey(const std::string& text, const std::string& key) {
  if (key == "reward" || key == "env") return key;
  constexpr std::string_view kRollout = "rollout/";
  if (!key.starts_with(kRollout) || key.size() == kRollout.size()) return BadForm(text);
  return PoolKey("rollout", key.substr(kRollout.size()));
}

}  // namespace

bool IsObjectName(std::string_view name) {
  return !name.empty() && name.size() <= kMaxName && IsAlnum(name.front()) &&
         IsAlnum(name.back()) && name.find("..") == std::string_view::npos &&
         std::all_of(name.begin(), name.end(),
                     [](char c) { return IsAlnum(c) || c == '-' || c == '.'; });
}

absl::StatusOr<std::map<std::string, ScaleTarget>> ParseScaleTargets(
    const std::vector<std::string>& texts) {
  std::map<std::string, ScaleTarget> targets;
  for (const std::string& text : texts) {
    const size_t equals = text.find('=');
    const size_t slash = text.find('/', equals == std::string::npos ? 0 : equals);
    if (equals == std::string::npos || slash == std::string::npos) return BadForm(text);
    FRESHET_ASSIGN_OR_RETURN(const std::string key, ParseKey(text, text.substr(0, equals)));
    const std::string resource = text.substr(equals + 1, slash - equals - 1);
    ScaleTarget target;
    target.name = text.substr(slash + 1);
    if (resource == "leaderworkersets") {
      target.resource = ScaleTarget::Resource::kLeaderWorkerSet;
      const std::optional<int32_t> size = TakeSize(target.name);
      if (!size.has_value()) return BadForm(text);
      target.size = *size;
    } else if (resource != "deployments") {
      return BadForm(text);
    }
    if (!IsObjectName(target.name)) {
      return InvalidArgument("\"", text.substr(0, 120), "\": \"", target.name.substr(0, 80),
                             "\" is not a valid Kubernetes object name");
    }
    if (!targets.emplace(key, target).second) {
      return InvalidArgument("\"", text.substr(0, 120), "\": ", key, " is named twice");
    }
  }
  return targets;
}

}  // namespace freshet
