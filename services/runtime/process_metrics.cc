#include "services/runtime/process_metrics.h"

#include <dirent.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <sstream>
#include <vector>

namespace freshet::runtime {
namespace {

prometheus::Gauge& AddGauge(prometheus::Registry& registry, const char* name, const char* help) {
  return metrics::GaugeFamily(registry, name, help).Add({});
}

// The fields of /proc/self/stat after the program's name: [0] is the state, field 3 of proc(5).
std::vector<std::string> ReadStat() {
  std::ifstream file("/proc/self/stat");
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const size_t name_end = text.rfind(')');
  std::istringstream rest(name_end == std::string::npos ? "" : text.substr(name_end + 1));
  return {std::istream_iterator<std::string>(rest), {}};
}

double CountEntries(const char* path) {
  DIR* folder = ::opendir(path);
  if (folder == nullptr) return -1;
  double entries = -3;  // excludes ".", ".." and the descriptor of the listing itself
  while (::readdir(folder) != nullptr) ++entries;
  ::closedir(folder);
  return entries;
}

// Unix time at which the machine booted.
double BootTime() {
  std::ifstream file("/proc/stat");
  std::string word;
  while (file >> word) {
    double seconds = 0;
    if (word == "btime" && file >> seconds) return seconds;
  }
  return 0;
}

}  // namespace

ProcessMetrics::ProcessMetrics(prometheus::Registry& registry, const std::string& role,
                               const std::string& version)
    : cpu_seconds_(metrics::CounterFamily(registry, "process_cpu_seconds_total",
                                          "User and system CPU time of the process.")
                       .Add({})),
      resident_bytes_(
          AddGauge(registry, "process_resident_memory_bytes", "Resident memory of the process.")),
      virtual_bytes_(
          AddGauge(registry, "process_virtual_memory_bytes", "Virtual memory of the process.")),
      open_fds_(AddGauge(registry, "process_open_fds", "Open file descriptors.")),
      max_fds_(AddGauge(registry, "process_max_fds", "Limit of open file descriptors.")),
      threads_(AddGauge(registry, "process_threads", "Threads of the process.")),
      start_time_(AddGauge(registry, "process_start_time_seconds",
                           "Unix time at which the process started.")) {
  metrics::GaugeFamily(registry, "freshet_build_info", "Version of the program; always 1.")
      .Add({{"role", role}, {"version", version}})
      .Set(1);
  const std::vector<std::string> stat = ReadStat();
  const auto ticks = static_cast<double>(::sysconf(_SC_CLK_TCK));
  if (stat.size() > 19)
    start_time_.Set(BootTime() + std::strtod(stat[19].c_str(), nullptr) / ticks);
  Refresh();
}

void ProcessMetrics::Refresh() {
  const std::vector<std::string> stat = ReadStat();
  if (stat.size() > 21) {
    const auto number = [&stat](size_t i) { return std::strtod(stat[i].c_str(), nullptr); };
    const auto ticks = static_cast<double>(::sysconf(_SC_CLK_TCK));
    metrics::RaiseTo(cpu_seconds_, (number(11) + number(12)) / ticks);
    threads_.Set(number(17));
    virtual_bytes_.Set(number(20));
    resident_bytes_.Set(number(21) * static_cast<double>(::sysconf(_SC_PAGESIZE)));
  }
  if (const double fds = CountEntries("/proc/self/fd"); fds >= 0) open_fds_.Set(fds);
  struct rlimit limit {};
  if (::getrlimit(RLIMIT_NOFILE, &limit) == 0) max_fds_.Set(static_cast<double>(limit.rlim_cur));
}

}  // namespace freshet::runtime
