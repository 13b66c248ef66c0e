#include "cli/cluster/cluster_health.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace freshet {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

job::v1::Cluster ClusterOf(const std::string& leader) {
  job::v1::Cluster cluster;
  cluster.set_leader(leader);
  return cluster;
}

void AddWorker(job::v1::Cluster& cluster, const std::string& role, const std::string& state) {
  job::v1::Worker* worker = cluster.add_workers();
  worker->set_role(role);
  worker->set_state(state);
}

TEST(ClusterHealth, NamesALeaderAndEachRoleThatIsMissing) {
  job::v1::Cluster cluster = ClusterOf("");
  AddWorker(cluster, "reward", "ready");
  AddWorker(cluster, "trainer", "lost");
  EXPECT_THAT(MissingFromCluster(cluster, kRolesOfAJob),
              ElementsAre("no controller leads", "no rollout is ready, of 0 registered",
                          "no trainer is ready, of 1 registered"));
}

TEST(ClusterHealth, AsksOnlyForTheRolesThatAreNeeded) {
  job::v1::Cluster cluster = ClusterOf("c:7070");
  AddWorker(cluster, "trainer", "ready");
  EXPECT_THAT(MissingFromCluster(cluster, {"trainer"}), IsEmpty());
  EXPECT_THAT(MissingFromCluster(cluster, {"trainer", "env"}),
              ElementsAre("no env is ready, of 0 registered"));
  EXPECT_EQ(DescribeHealth(cluster), "controller c:7070 leads; ready: 1 trainer");
}

}  // namespace
}  // namespace freshet
