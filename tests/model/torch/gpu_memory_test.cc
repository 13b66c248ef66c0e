#include "model/gpu_memory.h"

#include <stdexcept>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "model/gpu.h"
#include "model/torch.h"

namespace freshet {
namespace {

using testing::IsEmpty;

// LibTorch's interface to the allocator of a machine with three GPUs, of which the first two are
// used.
class ThreeGpus final : public c10::DeviceAllocator {
 public:
  bool initialized() override { return ready; }
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex device) override {
    c10::CachingDeviceAllocator::DeviceStats stats;
    if (device == 2) return stats;
    const size_t unit = device == 0 ? 10 : 1;
    stats.allocated_bytes[0].increase(3 * unit);
    stats.reserved_bytes[0].increase(5 * unit);
    stats.reserved_bytes[0].decrease(unit);
    return stats;
  }
  std::pair<size_t, size_t> getMemoryInfo(c10::DeviceIndex device) override {
    EXPECT_LT(device, 2) << "asking takes memory on the GPU";
    if (device == broken) throw std::runtime_error("CUDA error: an illegal memory access");
    return {60, device == 0 ? 100 : 200};
  }

  c10::DataPtr allocate(size_t) override { return {}; }
  void copy_data(void*, const void*, size_t) const override {}
  void emptyCache(c10::MempoolId_t) override {}
  void recordStream(const c10::DataPtr&, c10::Stream) override {}
  void resetAccumulatedStats(c10::DeviceIndex) override {}
  void resetPeakStats(c10::DeviceIndex) override {}

  bool ready = true;
  int broken = -1;
};

TEST(GpuMemory, IsReadOfGpusThatHaveTensors) {
  ThreeGpus allocator;
  const std::vector<GpuMemory> gpus = ReadGpuMemoryOf(allocator, 3);
  ASSERT_EQ(gpus.size(), 2U);
  EXPECT_EQ(gpus[0].device, "cuda:0");
  EXPECT_EQ(gpus[0].total_bytes, 100);
  EXPECT_EQ(gpus[0].free_bytes, 60);
  EXPECT_EQ(gpus[0].allocated_bytes, 30);
  EXPECT_EQ(gpus[0].reserved_bytes, 40);
  EXPECT_EQ(gpus[1].device, "cuda:1");
  EXPECT_EQ(gpus[1].total_bytes, 200);
}

TEST(GpuMemory, LeavesOutAGpuThatDoesNotAnswer) {
  ThreeGpus allocator;
  allocator.broken = 0;
  const std::vector<GpuMemory> gpus = ReadGpuMemoryOf(allocator, 3);
  ASSERT_EQ(gpus.size(), 1U);
  EXPECT_EQ(gpus[0].device, "cuda:1");
}

TEST(GpuMemory, IsNotReadBeforeTheFirstTensor) {
  ThreeGpus allocator;
  allocator.ready = false;
  EXPECT_THAT(ReadGpuMemoryOf(allocator, 3), IsEmpty());
}

TEST(GpuMemory, IsThatOfAProcessWithoutAGpu) {
  if (FindGpu("auto").value().has_value()) GTEST_SKIP() << "this machine has a GPU: test skipped";
  EXPECT_THAT(ReadGpuMemory(), IsEmpty());
}

}  // namespace
}  // namespace freshet
