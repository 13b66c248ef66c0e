#ifndef FRESHET_TESTS_CONTRACT_DEVICE_MEMORY_CONTRACT_H_
#define FRESHET_TESTS_CONTRACT_DEVICE_MEMORY_CONTRACT_H_

#include <algorithm>
#include <memory>
#include <span>
#include <string>

#include "gtest/gtest.h"
#include "tests/contract/weight_version.h"
#include "weights/cuda/device_memory.h"

namespace freshet {

// What every DeviceMemory promises. `Maker::Make()` makes two objects for the same GPU, which stand
// for two processes; their memory can be read by the CPU. `Maker::kCapacity`: bytes of the GPU.
template <typename Maker>
class DeviceMemoryContract : public testing::Test {
 protected:
  Maker maker_;
  const std::shared_ptr<DeviceMemory> ours_ = maker_.Make();
  const std::shared_ptr<DeviceMemory> theirs_ = maker_.Make();
};

TYPED_TEST_SUITE_P(DeviceMemoryContract);

TYPED_TEST_P(DeviceMemoryContract, OthersReadWhatWasWritten) {
  for (const int64_t size : {1, 64, 65, 128, 100'003}) {
    const WeightBytes bytes = PatternBytes(size, 1);
    const auto memory = this->ours_->Allocate(bytes->size());
    ASSERT_TRUE(memory.ok()) << memory.status();
    ASSERT_TRUE(this->ours_->Write(*memory, *bytes, absl::InfiniteFuture()).ok());
    const auto handle = this->ours_->Export(*memory);
    ASSERT_TRUE(handle.ok()) << handle.status();
    EXPECT_EQ(handle->size(), kDeviceHandleBytes);
    const auto opened = this->theirs_->Open(*handle);
    ASSERT_TRUE(opened.ok()) << opened.status();
    EXPECT_TRUE(std::equal(bytes->begin(), bytes->end(), *opened));
    // Another version in the same memory, which stays open.
    const WeightBytes next = PatternBytes(size, 2);
    ASSERT_TRUE(this->ours_->Write(*memory, *next, absl::InfiniteFuture()).ok());
    EXPECT_TRUE(std::equal(next->begin(), next->end(), *opened));
    this->theirs_->Close(*opened);
    this->ours_->Free(*memory);
  }
}

TYPED_TEST_P(DeviceMemoryContract, ProcessesSeeTheSameGpu) {
  EXPECT_EQ(this->ours_->uuid().size(), kDeviceUuidBytes);
  EXPECT_EQ(this->ours_->uuid(), this->theirs_->uuid());
}

TYPED_TEST_P(DeviceMemoryContract, EveryAllocationHasItsOwnHandle) {
  const auto first = this->ours_->Allocate(10);
  const auto second = this->ours_->Allocate(10);
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_NE(*this->ours_->Export(*first), *this->ours_->Export(*second));
  this->ours_->Free(*first);
  this->ours_->Free(*second);
}

TYPED_TEST_P(DeviceMemoryContract, RefusesAHandleThatIsNone) {
  EXPECT_EQ(this->theirs_->Open("short").status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(this->theirs_->Open(std::string(kDeviceHandleBytes, 'x')).status().code(),
            absl::StatusCode::kUnavailable);
}

TYPED_TEST_P(DeviceMemoryContract, SaysThatTheGpuIsFull) {
  EXPECT_EQ(this->ours_->Allocate(TypeParam::kCapacity + 1).status().code(),
            absl::StatusCode::kResourceExhausted);
}

REGISTER_TYPED_TEST_SUITE_P(DeviceMemoryContract, OthersReadWhatWasWritten, ProcessesSeeTheSameGpu,
                            EveryAllocationHasItsOwnHandle, RefusesAHandleThatIsNone,
                            SaysThatTheGpuIsFull);

}  // namespace freshet

#endif  // FRESHET_TESTS_CONTRACT_DEVICE_MEMORY_CONTRACT_H_
