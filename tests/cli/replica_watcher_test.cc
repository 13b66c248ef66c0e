#include "cli/cluster/replica_watcher.h"

#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/cli/fake_job_service.h"

namespace freshet {
namespace {

TEST(ReplicaWatcher, TellsWhatItRunsWithoutDrainingWhatOthersRun) {
  FakeJobService service;
  const auto follower =
      ReplicaWatcher::Start(service.address(), {{"rollout", 2}, {"trainer", 1}}, "");
  ASSERT_TRUE(follower.ok()) << follower.status();
  const absl::Time give_up = absl::Now() + absl::Seconds(20);
  while ((*follower)->wanted().empty() && absl::Now() < give_up) {
    absl::SleepFor(absl::Milliseconds(5));
  }
  EXPECT_THAT((*follower)->wanted(), testing::ElementsAre(testing::Pair("rollout", 2)));
  EXPECT_EQ(service.last_scale().replicas(), 2);
  EXPECT_TRUE(service.last_scale().keep_workers());
}

}  // namespace
}  // namespace freshet
