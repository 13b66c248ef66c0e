#include "services/sandbox/isolation/root_folder.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace freshet::sandbox {
namespace {

TEST(RootFolderTest, LeavesOutPathsBelowOthers) {
  EXPECT_THAT(WithoutNested({"/usr/lib", "/usr", "/usr-local/x", "/lib", "/usr", "/lib64"}),
              testing::UnorderedElementsAre("/usr", "/usr-local/x", "/lib", "/lib64"));
}

}  // namespace
}  // namespace freshet::sandbox
