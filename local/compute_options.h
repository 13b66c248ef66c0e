#ifndef FRESHET_LOCAL_COMPUTE_OPTIONS_H_
#define FRESHET_LOCAL_COMPUTE_OPTIONS_H_

#include <cstdint>
#include <string>

namespace freshet {

// How a command's engine computes.
struct ComputeOptions {
  std::string dtype = "fp32";  // fp32 | bf16 | int8
  std::string device = "cpu";  // see OpenDevice
  int threads = 0;             // 0: one per CPU of the container or machine
  int64_t kv_cache_bytes = 0;  // 0: 4 GiB, at most a quarter of the container's memory
};

}  // namespace freshet

#endif  // FRESHET_LOCAL_COMPUTE_OPTIONS_H_
