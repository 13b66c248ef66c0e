#include "services/sandbox/worker/python_process.h"

#include "base/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace freshet::sandbox {
namespace {

TEST(PythonProcess, AProgramThatIsNoPythonIsRefusedWithoutAWait) {
  const auto process = PythonProcess::Start("/bin/true", "");
  EXPECT_EQ(process.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(Message(process.status()), "/bin/true ends at once");
}

}  // namespace
}  // namespace freshet::sandbox
