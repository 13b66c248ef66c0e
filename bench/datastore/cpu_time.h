#ifndef FRESHET_BENCH_DATASTORE_CPU_TIME_H_
#define FRESHET_BENCH_DATASTORE_CPU_TIME_H_

#include <sys/resource.h>

#include <cstdlib>
#include <string>

namespace freshet {

// CPU seconds used by all threads of this process.
inline double CpuSeconds() {
  rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

// CPU seconds of a redis-server; `info` is the reply to INFO cpu.
inline double RedisCpuSeconds(const std::string& info) {
  double seconds = 0;
  for (const char* name : {"used_cpu_sys:", "used_cpu_user:"}) {
    const size_t at = info.find(name);
    if (at != std::string::npos) seconds += std::atof(info.c_str() + info.find(':', at) + 1);
  }
  return seconds;
}

}  // namespace freshet

#endif  // FRESHET_BENCH_DATASTORE_CPU_TIME_H_
