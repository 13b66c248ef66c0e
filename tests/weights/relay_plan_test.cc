#include "weights/relay_plan.h"

#include <string>
#include <vector>

#include "base/str_cat.h"
#include "gtest/gtest.h"

namespace freshet {
namespace {

WeightMember MemberAt(const std::string& worker, const std::string& site) {
  return {worker, StrCat(worker, ":1"), "", site};
}

// The workers of each chain.
std::vector<std::vector<std::string>> Workers(const RelayPlan& plan) {
  std::vector<std::vector<std::string>> workers;
  for (const auto& chain : plan.chains) {
    workers.emplace_back();
    for (const WeightMember& member : chain) workers.back().push_back(member.worker);
  }
  return workers;
}

using Chains = std::vector<std::vector<std::string>>;

TEST(PlanRelay, NobodyMakesNoChain) {
  const RelayPlan plan = PlanRelay({});
  EXPECT_TRUE(plan.chains.empty());
  EXPECT_EQ(plan.reason, "0 chains for 0 members of 0 sites");
}

TEST(PlanRelay, MembersWithoutASiteFormOneChainInTheirOrder) {
  const RelayPlan plan = PlanRelay({MemberAt("c", ""), MemberAt("a", ""), MemberAt("b", "")});
  EXPECT_EQ(Workers(plan), (Chains{{"c", "a", "b"}}));
}

TEST(PlanRelay, EachSiteIsAChain) {
  const RelayPlan plan = PlanRelay({MemberAt("a", "eu"), MemberAt("b", "us"), MemberAt("c", "eu"),
                                    MemberAt("d", ""), MemberAt("e", "us")});
  EXPECT_EQ(Workers(plan), (Chains{{"a", "c"}, {"b", "e"}, {"d"}}));
  EXPECT_EQ(plan.reason, "3 chains for 5 members of 3 sites");
}

TEST(PlanRelay, ASiteIsDividedOnlyIfAChainMayNotHoldIt) {
  for (const size_t n : {1025U, 1026U, 2051U}) {
    std::vector<WeightMember> members;
    for (size_t i = 0; i < n; ++i) members.push_back(MemberAt(StrCat("m", i), "eu"));
    members.push_back(MemberAt("other", "us"));
    const RelayPlan plan = PlanRelay(members);
    size_t count = 0;
    for (const auto& chain : plan.chains) {
      EXPECT_LE(chain.size(), 1025U) << n;  // the first and 1024 after it
      count += chain.size();
    }
    EXPECT_EQ(count, n + 1);
    EXPECT_EQ(plan.chains.size(), (n + 1024) / 1025 + 1) << n;
  }
}

}  // namespace
}  // namespace freshet
