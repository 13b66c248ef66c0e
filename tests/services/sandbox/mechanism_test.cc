#include "services/sandbox/worker/mechanism.h"

#include <utility>

#include "gtest/gtest.h"

namespace freshet::sandbox {
namespace {

using v1::WorkerStart;

TEST(MechanismTest, NamespacesReplaceWhatTheKernelLacksOnlyAtTheLevelAny) {
  for (const auto level :
       {WorkerStart::LEVEL_PROCESS, WorkerStart::LEVEL_NAMESPACES, WorkerStart::LEVEL_ANY}) {
    EXPECT_EQ(ChooseMechanism(true, true, level).value(), Mechanism::kLandlock);
  }
  for (const auto& [landlock, notifications] :
       {std::pair(false, false), {true, false}, {false, true}}) {
    EXPECT_EQ(ChooseMechanism(landlock, notifications, WorkerStart::LEVEL_ANY).value(),
              Mechanism::kNamespaces);
    for (const auto level : {WorkerStart::LEVEL_PROCESS, WorkerStart::LEVEL_NAMESPACES}) {
      EXPECT_EQ(ChooseMechanism(landlock, notifications, level).status().code(),
                absl::StatusCode::kFailedPrecondition);
    }
  }
}

}  // namespace
}  // namespace freshet::sandbox
