#ifndef FRESHET_SERVICES_RUNTIME_GPU_MEMORY_METRICS_H_
#define FRESHET_SERVICES_RUNTIME_GPU_MEMORY_METRICS_H_

#include <map>
#include <string>

#include "base/gpu_memory.h"
#include "services/runtime/series.h"

namespace freshet::metrics {

// Memory of the GPUs that the process uses, by device. Nothing is exported without one.
// Thread-compatible.
class GpuMemoryMetrics {
 public:
  // `registry` must outlive this object. `read` may be empty: no GPU.
  GpuMemoryMetrics(prometheus::Registry& registry, GpuMemoryReader read);

  // Reads the memory again.
  void Refresh();

 private:
  struct Device {
    GaugeSeries total, free, allocated, reserved;
  };

  prometheus::Registry& registry_;
  const GpuMemoryReader read_;
  std::map<std::string, Device> devices_;
};

}  // namespace freshet::metrics

#endif  // FRESHET_SERVICES_RUNTIME_GPU_MEMORY_METRICS_H_
