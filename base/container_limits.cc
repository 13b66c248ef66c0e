#include "base/container_limits.h"

#include <algorithm>
#include <fstream>
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

int UsableProcessors(const ContainerLimits& limits) {
  const auto machine = static_cast<double>(std::thread::hardware_concurrency());
  return std::max(1, static_cast<int>(std::min(limits.cpus.value_or(machine), machine)));
}

}  // namespace freshet
