#include <map>
#include <string>

#include "cli/cluster/replica_watcher.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace freshet {
namespace {

using testing::ElementsAre;
using testing::Pair;

TEST(ScalableGroups, TakesWhatMayBeScaledAndNothingElse) {
  job::v1::Cluster cluster;
  const std::map<std::string, int> kWanted = {
      {"rollout", 2}, {"rollout/small", 1}, {"rollout/../x", 1}, {"rollout/", 9},    {"reward", 0},
      {"env", 3},     {"trainer", 5},       {"controller", 2},   {"reward/pool", 1}, {"", 1}};
  for (const auto& [name, count] : kWanted) (*cluster.mutable_wanted())[name] = count;
  EXPECT_THAT(ScalableGroups(cluster), ElementsAre(Pair("env", 3), Pair("reward", 0),
                                                   Pair("rollout", 2), Pair("rollout/small", 1)));
  (*cluster.mutable_wanted())["env"] = -1;
  EXPECT_EQ(ScalableGroups(cluster).count("env"), 0U);
}

TEST(ScalableGroups, TheDefaultPoolHasNoName) {
  job::v1::Cluster cluster;
  (*cluster.mutable_wanted())["rollout/default"] = 4;
  EXPECT_THAT(ScalableGroups(cluster), ElementsAre(Pair("rollout", 4)));
}

}  // namespace
}  // namespace freshet
