#include "controller/service/redis_space.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "services/base/str_cat.h"

namespace freshet {
namespace {

int64_t NumberOf(std::string_view text) {
  int64_t number = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), number);
  return parsed.ec == std::errc() ? number : 0;
}

double Megabytes(int64_t bytes) { return static_cast<double>(bytes / 100'000) / 10.0; }

}  // namespace

RedisMemory ParseRedisMemory(std::string_view info) {
  constexpr std::string_view kRefused = "errorstat_OOM:count=";
  RedisMemory memory;
  while (!info.empty()) {
    const size_t end = std::min(info.find('\n'), info.size());
    const std::string_view line = info.substr(0, end);
    info.remove_prefix(std::min(end + 1, info.size()));
    const size_t colon = line.find(':');
    if (colon == std::string_view::npos) continue;
    const std::string_view name = line.substr(0, colon);
    if (name == "used_memory") memory.used_bytes = NumberOf(line.substr(colon + 1));
    if (name == "maxmemory") memory.bound_bytes = NumberOf(line.substr(colon + 1));
    if (line.starts_with(kRefused)) memory.refused = NumberOf(line.substr(kRefused.size()));
  }
  return memory;
}

absl::Status RedisSpace::Take(const RedisMemory& memory, absl::Time now) {
  const int64_t before = std::exchange(refused_, memory.refused);
  if (before >= 0 && memory.refused > before) refused_at_ = now;
  const bool full = memory.bound_bytes > 0 && memory.used_bytes >= memory.bound_bytes;
  if (!full && now - refused_at_ >= kAfterRefusal) return absl::OkStatus();
  return ResourceExhausted("redis is at its memory limit: ", Megabytes(memory.used_bytes), " of ",
                           Megabytes(memory.bound_bytes),
                           " MB used (maxmemory); give it more, or delete jobs");
}

}  // namespace freshet
