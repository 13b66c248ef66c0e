#include "weights/cuda/cuda_memory.h"

#include <cstddef>
#include <memory>
#include <string>

#include "gtest/gtest.h"
#include "tests/contract/device_memory_contract.h"
#include "tests/weights/cuda/fake_cudart.h"
#include "tests/weights/cuda/fake_gpu.h"

namespace freshet {
namespace {

CudaMemoryOptions Options(int device = 1) {
  CudaMemoryOptions options;
  options.device = device;
  options.library = FRESHET_FAKE_CUDART;
  options.piece_bytes = 64;
  return options;
}

std::shared_ptr<DeviceMemory> Open() { return OpenCudaMemory(Options()).value(); }

struct CudaMaker {
  static constexpr size_t kCapacity = kFakeCudaCapacity;
  std::shared_ptr<DeviceMemory> Make() { return Open(); }
};
struct FakeMaker {
  static constexpr size_t kCapacity = 1 << 20;
  std::shared_ptr<FakeGpu> gpu = std::make_shared<FakeGpu>('a', kCapacity);
  std::shared_ptr<DeviceMemory> Make() { return std::make_shared<FakeDeviceMemory>(gpu); }
};

INSTANTIATE_TYPED_TEST_SUITE_P(Cuda, DeviceMemoryContract, CudaMaker);
INSTANTIATE_TYPED_TEST_SUITE_P(Fake, DeviceMemoryContract, FakeMaker);

class CudaMemoryTest : public testing::Test {
 protected:
  void TearDown() override { FakeCudaSetFault(FakeCudaFault::kNone); }
};

TEST_F(CudaMemoryTest, ReadsTheUuidOfItsGpu) {
  EXPECT_EQ(OpenCudaMemory(Options(0)).value()->uuid(), std::string(16, 'A'));
  EXPECT_EQ(OpenCudaMemory(Options(1)).value()->uuid(), std::string(16, 'B'));
}

TEST_F(CudaMemoryTest, SaysWhatIsMissing) {
  CudaMemoryOptions options = Options();
  options.library = "libno-such-library.so";
  absl::Status status = OpenCudaMemory(options).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_NE(Message(status).find("libno-such-library.so cannot be used"), std::string::npos);
  options.library = "libm.so.6";
  status = OpenCudaMemory(options).status();
  EXPECT_EQ(Message(status), "libm.so.6 cannot be used: it has no cudaGetDevice");
  FakeCudaSetFault(FakeCudaFault::kNoGpu);
  status = OpenCudaMemory(Options()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(Message(status), "CUDA: cudaGetDeviceProperties: no driver");
}

TEST_F(CudaMemoryTest, LeavesTheThreadsDeviceAndNoErrorBehind) {
  const std::shared_ptr<DeviceMemory> memory = Open();
  EXPECT_EQ(FakeCudaDevice(), 0);
  const auto allocated = memory->Allocate(100);
  ASSERT_TRUE(allocated.ok());
  FakeCudaSetFault(FakeCudaFault::kNoExport);
  EXPECT_EQ(memory->Export(*allocated).status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(FakeCudaPendingError(), 0);
  FakeCudaSetFault(FakeCudaFault::kNoOpen);
  EXPECT_EQ(Message(memory->Open(std::string(64, 'x')).status()),
            "CUDA: cudaIpcOpenMemHandle: invalid handle");
  EXPECT_EQ(FakeCudaPendingError(), 0);
  EXPECT_FALSE(memory->Allocate(2 * kFakeCudaCapacity).ok());
  EXPECT_EQ(FakeCudaPendingError(), 0);
  memory->Free(*allocated);
  EXPECT_EQ(FakeCudaDevice(), 0);
}

TEST_F(CudaMemoryTest, GivesEverythingBack) {
  const int before = FakeCudaLiveObjects();
  {
    const std::shared_ptr<DeviceMemory> memory = Open();
    const auto allocated = memory->Allocate(1000);
    ASSERT_TRUE(allocated.ok());
    ASSERT_TRUE(memory->Write(*allocated, *PatternBytes(1000, 1), absl::InfiniteFuture()).ok());
    memory->Free(*allocated);
  }
  EXPECT_EQ(FakeCudaLiveObjects(), before);
}

TEST_F(CudaMemoryTest, ACopyThatDoesNotEndDisablesTheMemory) {
  CudaMemoryOptions options = Options();
  options.patience = absl::ZeroDuration();
  const std::shared_ptr<DeviceMemory> memory = OpenCudaMemory(options).value();
  const auto allocated = memory->Allocate(1000);
  ASSERT_TRUE(allocated.ok());
  FakeCudaSetFault(FakeCudaFault::kHang);
  EXPECT_EQ(memory->Write(*allocated, *PatternBytes(1000, 1), absl::InfiniteFuture()).code(),
            absl::StatusCode::kDeadlineExceeded);
  FakeCudaSetFault(FakeCudaFault::kNone);
  EXPECT_EQ(memory->Write(*allocated, *PatternBytes(1000, 1), absl::InfiniteFuture()).code(),
            absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(memory->Allocate(10).status().code(), absl::StatusCode::kDeadlineExceeded);
  // The GPU may still write to it.
  const int before = FakeCudaLiveObjects();
  memory->Free(*allocated);
  EXPECT_EQ(FakeCudaLiveObjects(), before);
}

TEST_F(CudaMemoryTest, ACopyAfterOneThatHadTooLittleTimeWorks) {
  const std::shared_ptr<DeviceMemory> memory = Open();
  const auto allocated = memory->Allocate(1000);
  ASSERT_TRUE(allocated.ok());
  EXPECT_EQ(memory->Write(*allocated, *PatternBytes(1000, 1), absl::InfinitePast()).code(),
            absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(memory->Write(*allocated, *PatternBytes(1000, 1), absl::InfiniteFuture()),
            absl::OkStatus());
}

TEST_F(CudaMemoryTest, ReportsACopyThatFails) {
  const std::shared_ptr<DeviceMemory> memory = Open();
  const auto allocated = memory->Allocate(100);
  ASSERT_TRUE(allocated.ok());
  FakeCudaSetFault(FakeCudaFault::kCopy);
  const absl::Status status =
      memory->Write(*allocated, *PatternBytes(100, 1), absl::InfiniteFuture());
  EXPECT_EQ(Message(status), "CUDA: cudaStreamQuery: failed");
}

#ifdef FRESHET_CUDART
// The functions have these names there; without a driver the first call fails.
TEST_F(CudaMemoryTest, FindsItsFunctionsInTheCudaRuntime) {
  const absl::Status status =
      OpenCudaMemory({.device = 0, .library = FRESHET_CUDART, .piece_bytes = 64, .patience = {}})
          .status();
  EXPECT_TRUE(status.ok() || Message(status).starts_with("CUDA: cudaGetDeviceProperties: "))
      << status;
}
#endif

}  // namespace
}  // namespace freshet
