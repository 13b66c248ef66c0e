#include "base/container_limits.h"

#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <string_view>
#include <thread>

namespace freshet {
namespace {

// The file's number; "max", as in version 2, and a missing file: none.
std::optional<double> ReadNumber(std::ifstream& file) {
  double number = 0;
  if (!(file >> number) || number <= 0) return std::nullopt;
  return number;
}
std::optional<double> ReadNumber(const std::string& path) {
  std::ifstream file(path);
  return ReadNumber(file);
}

std::optional<int64_t> ReadInteger(const std::string& path) {
  std::ifstream file(path);
  int64_t number = 0;
  return file >> number ? std::optional(number) : std::nullopt;
}
// The number after `name` in a file of names and numbers.
std::optional<int64_t> ReadNamed(const std::string& path, std::string_view name) {
  std::ifstream file(path);
  std::string word;
  while (file >> word && word != name) {
  }
  int64_t number = 0;
  return file >> number ? std::optional(number) : std::nullopt;
}

std::optional<double> ReadCpus(const std::string& root) {
  std::ifstream file(root + "/cpu.max");  // "QUOTA PERIOD"
  std::optional<double> quota = ReadNumber(file);
  std::optional<double> period = ReadNumber(file);
  if (!file.is_open()) {
    quota = ReadNumber(root + "/cpu/cpu.cfs_quota_us");  // -1: no limit
    period = ReadNumber(root + "/cpu/cpu.cfs_period_us");
  }
  if (!quota.has_value() || !period.has_value()) return std::nullopt;
  return *quota / *period;
}

}  // namespace

ContainerLimits ReadContainerLimits(const std::string& root) {
  ContainerLimits limits;
  limits.cpus = ReadCpus(root);
  std::optional<double> memory = ReadNumber(root + "/memory.max");
  if (!memory.has_value()) memory = ReadNumber(root + "/memory/memory.limit_in_bytes");
  // Version 1 says "no limit" by a number close to 2^63.
  if (memory.has_value() && *memory < 1e18) limits.memory_bytes = static_cast<int64_t>(*memory);
  return limits;
}

int64_t UsableMemory(const ContainerLimits& limits) {
  const int64_t machine = ::sysconf(_SC_PHYS_PAGES) * ::sysconf(_SC_PAGESIZE);
  return std::min(limits.memory_bytes.value_or(machine), machine);
}

int64_t AvailableMemory(const std::string& meminfo, const std::string& root) {
  const int64_t machine = 1024 * ReadNamed(meminfo, "MemAvailable:").value_or(0);
  const std::optional<int64_t> limit = ReadContainerLimits(root).memory_bytes;
  std::optional<int64_t> used = ReadInteger(root + "/memory.current");
  std::optional<int64_t> cached = ReadNamed(root + "/memory.stat", "inactive_file");
  if (!used.has_value()) {
    used = ReadInteger(root + "/memory/memory.usage_in_bytes");
    cached = ReadNamed(root + "/memory/memory.stat", "total_inactive_file");
  }
  if (!limit.has_value() || !used.has_value()) return machine;
  return std::clamp<int64_t>(*limit - *used + cached.value_or(0), 0, machine);
}

int UsableProcessors(const ContainerLimits& limits) {
  const auto machine = static_cast<double>(std::thread::hardware_concurrency());
  return std::max(1, static_cast<int>(std::min(limits.cpus.value_or(machine), machine)));
}

}  // namespace freshet
