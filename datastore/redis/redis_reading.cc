#include "datastore/redis/redis_reading.h"

#include <algorithm>
#include <charconv>

#include "base/clock.h"
#include "base/str_cat.h"

namespace freshet {
namespace {

int64_t NumberOf(std::string_view text) {
  int64_t number = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), number);
  return parsed.ec == std::errc() ? number : 0;
}

}  // namespace

RedisReading ParseRedisInfo(std::string_view info) {
  constexpr std::string_view kRefused = "errorstat_OOM:count=";
  RedisReading reading;
  bool enabled = false;
  bool written = false;
  bool rewritten = false;
  while (!info.empty()) {
    const size_t end = std::min(info.find('\n'), info.size());
    const std::string_view line = info.substr(0, end);
    info.remove_prefix(std::min(end + 1, info.size()));
    const size_t colon = line.find(':');
    if (colon == std::string_view::npos) continue;
    const std::string_view name = line.substr(0, colon);
    std::string_view value = line.substr(colon + 1);
    if (value.ends_with('\r')) value.remove_suffix(1);
    if (name == "used_memory") reading.used_bytes = NumberOf(value);
    if (name == "maxmemory") reading.bound_bytes = NumberOf(value);
    if (name == "evicted_keys") reading.evicted = NumberOf(value);
    if (name == "aof_enabled") enabled = value == "1";
    if (name == "aof_last_write_status") written = value == "ok";
    if (name == "aof_last_bgrewrite_status") rewritten = value == "ok";
    if (line.starts_with(kRefused)) reading.refused = NumberOf(line.substr(kRefused.size()));
  }
  reading.append_only_ok = enabled && written && rewritten;
  return reading;
}

int64_t PressedPercent(const RedisReading& reading) {
  if (reading.bound_bytes <= 0) return 0;
  const auto percent = static_cast<int64_t>(100.0 * static_cast<double>(reading.used_bytes) /
                                            static_cast<double>(reading.bound_bytes));
  return percent >= kPressurePercent ? percent : 0;
}

std::string PressureText(int64_t percent) {
  return StrCat("redis is at ", percent, " % of its memory limit");
}

int64_t RedisMemoryGauge::PressedPercent() {
  {
    MutexLock lock(mu_);
    const absl::Time now = SystemClock::Get().Now();
    if (now - read_ < period_) return percent_;
    read_ = now;
  }
  const absl::StatusOr<RedisReply> info = client_.Command({"INFO", "memory"});
  MutexLock lock(mu_);
  return percent_ = info.ok() ? freshet::PressedPercent(ParseRedisInfo(info->text)) : 0;
}

}  // namespace freshet
