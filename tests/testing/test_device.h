#ifndef FRESHET_TESTS_TESTING_TEST_DEVICE_H_
#define FRESHET_TESTS_TESTING_TEST_DEVICE_H_

#include <cstdlib>
#include <string>

#include "gtest/gtest.h"
#include "model/device.h"

namespace freshet {

// What the environment variable FRESHET_TEST_DEVICE names: the device that tests compute on.
inline std::string TestDeviceName() {
  const char* name = std::getenv("FRESHET_TEST_DEVICE");
  return name == nullptr ? "cpu" : name;
}
inline bool TestsOnCpu() { return TestDeviceName() == "cpu"; }
// LibTorch looks for a GPU once, when it is first used.
inline const bool kTestDeviceIsOpen = TestsOnCpu() || OpenDevice(TestDeviceName()).ok();

inline at::Device TestDevice() {
  const auto device = OpenDevice(TestDeviceName());
  EXPECT_TRUE(device.ok()) << device.status();
  return device.value_or(at::Device(at::kCPU));
}

}  // namespace freshet

#endif  // FRESHET_TESTS_TESTING_TEST_DEVICE_H_
