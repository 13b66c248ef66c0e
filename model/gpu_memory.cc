#include "model/gpu_memory.h"

#include <exception>

#include "base/str_cat.h"

namespace freshet {
namespace {

constexpr auto kAll = static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE);

GpuMemory ReadOne(c10::DeviceAllocator& allocator, c10::DeviceIndex device,
                  const c10::CachingDeviceAllocator::DeviceStats& stats) {
  const auto [free, total] = allocator.getMemoryInfo(device);
  return {StrCat("cuda:", static_cast<int>(device)), static_cast<int64_t>(total),
          static_cast<int64_t>(free), stats.allocated_bytes[kAll].current,
          stats.reserved_bytes[kAll].current};
}

}  // namespace

std::vector<GpuMemory> ReadGpuMemoryOf(c10::DeviceAllocator& allocator, int num_gpus) {
  std::vector<GpuMemory> gpus;
  if (!allocator.initialized()) return gpus;
  for (int gpu = 0; gpu < num_gpus; ++gpu) {
    const auto device = static_cast<c10::DeviceIndex>(gpu);
    try {
      const auto stats = allocator.getDeviceStats(device);
      if (stats.reserved_bytes[kAll].peak > 0) gpus.push_back(ReadOne(allocator, device, stats));
    } catch (const std::exception&) {  // after an error of the GPU every call fails
    }
  }
  return gpus;
}

}  // namespace freshet
