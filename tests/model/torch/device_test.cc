#include "model/device.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace freshet {
namespace {

using testing::HasSubstr;

TEST(Device, NamesAreChecked) {
  EXPECT_TRUE(OpenDevice("cpu").value().is_cpu());
  for (const char* name : {"", "gpu", "cpu:0", "cuda:", "cuda:-1", "cuda:1x", "cudas"}) {
    const absl::Status status = OpenDevice(name).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << name;
    EXPECT_THAT(status.message(), HasSubstr("is not auto, cpu, cuda or cuda:N"));
  }
}

TEST(Device, AGpuThatIsNotThereIsAnErrorWithItsReason) {
  const auto device = OpenDevice("cuda:63");
  ASSERT_EQ(device.status().code(), absl::StatusCode::kFailedPrecondition) << device.status();
  EXPECT_THAT(device.status().message(), HasSubstr("device cuda"));
}

}  // namespace
}  // namespace freshet
