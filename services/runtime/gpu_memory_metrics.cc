#include "services/runtime/gpu_memory_metrics.h"

#include <utility>

namespace freshet::metrics {

GpuMemoryMetrics::GpuMemoryMetrics(prometheus::Registry& registry, GpuMemoryReader read)
    : registry_(registry), read_(std::move(read)) {}

void GpuMemoryMetrics::Refresh() {
  if (!read_) return;
  for (const GpuMemory& gpu : read_()) {
    const auto [found, is_new] = devices_.try_emplace(gpu.device);
    Device& device = found->second;
    if (is_new) {
      const auto gauge = [&](const char* name, const char* help) {
        return GaugeSeries(GaugeFamily(registry_, name, help), {{"device", gpu.device}});
      };
      device.total = gauge("freshet_gpu_memory_total_bytes", "Memory of the GPU.");
      device.free =
          gauge("freshet_gpu_memory_free_bytes", "Memory of the GPU that no process uses.");
      device.allocated = gauge("freshet_gpu_memory_allocated_bytes",
                               "Memory of the GPU that tensors of this process use.");
      device.reserved = gauge("freshet_gpu_memory_reserved_bytes",
                              "Memory of the GPU that this process's allocator holds: for its "
                              "tensors, and kept for the next ones.");
    }
    device.total->Set(static_cast<double>(gpu.total_bytes));
    device.free->Set(static_cast<double>(gpu.free_bytes));
    device.allocated->Set(static_cast<double>(gpu.allocated_bytes));
    device.reserved->Set(static_cast<double>(gpu.reserved_bytes));
  }
}

}  // namespace freshet::metrics
