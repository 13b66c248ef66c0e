#include "controller/kubernetes/deletion_costs.h"

#include "base/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace freshet {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;

const absl::Time kStart = absl::FromUnixSeconds(9000);

Member Engine(const std::string& name, int64_t sequences, const std::string& pool = "default") {
  Member member;
  member.record.set_name(name);
  member.record.set_role(cluster::v1::ROLE_ROLLOUT);
  member.record.set_pool(pool);
  member.connected = true;
  member.status.set_running_sequences(sequences);
  return member;
}

class DeletionCostsTest : public testing::Test {
 protected:
  std::vector<PodCost> Plan(const std::vector<Member>& workers, double seconds) {
    return costs_.Plan(workers, {"default"}, kStart + absl::Seconds(seconds));
  }
  std::vector<PodCost> Tell(const std::vector<Member>& workers, double seconds) {
    const std::vector<PodCost> plan = Plan(workers, seconds);
    for (const PodCost& cost : plan) costs_.Told(cost, kStart + absl::Seconds(seconds));
    return plan;
  }
  DeletionCosts costs_;
};

TEST_F(DeletionCostsTest, APodCostsItsSequences) {
  EXPECT_THAT(Tell({Engine("a", 7), Engine("b", 0)}, 0),
              ElementsAre(PodCost{"a", 7}, PodCost{"b", 0}));
}

TEST_F(DeletionCostsTest, IsToldOnChangeAndAtMostEveryTenSeconds) {
  Tell({Engine("a", 7)}, 0);
  EXPECT_THAT(Tell({Engine("a", 7)}, 60), IsEmpty());
  EXPECT_THAT(Tell({Engine("a", 8)}, 61), SizeIs(1));
  EXPECT_THAT(Tell({Engine("a", 9)}, 70.9), IsEmpty());
  EXPECT_THAT(Tell({Engine("a", 10)}, 71), ElementsAre(PodCost{"a", 10}));
}

TEST_F(DeletionCostsTest, AFailureIsTriedAgainAfterAMinute) {
  ASSERT_THAT(Plan({Engine("a", 7)}, 0), SizeIs(1));
  costs_.Failed({"a", 7}, kStart);
  EXPECT_THAT(Plan({Engine("a", 7)}, 59), IsEmpty());
  EXPECT_THAT(Plan({Engine("a", 7)}, 60), SizeIs(1));
}

TEST_F(DeletionCostsTest, OnlyEnginesOfThePoolsThatArePods) {
  std::vector<Member> workers = {Engine("q", 1, "other"), Engine("../x", 1), Engine("UPPER", 1)};
  workers.push_back(Engine("lost", 1));
  workers.back().record.set_lost(true);
  workers.push_back(Engine("joins", 1));
  workers.back().connected = false;
  workers.push_back(Engine("trainer", 1));
  workers.back().record.set_role(cluster::v1::ROLE_TRAINER);
  EXPECT_THAT(Plan(workers, 0), IsEmpty());
}

TEST_F(DeletionCostsTest, ManyPodsTakeTurns) {
  std::vector<Member> workers;
  for (int i = 0; i < 40; ++i) workers.push_back(Engine(StrCat("e-", i), i + 1));
  std::set<std::string> told;
  for (int second = 0; second < 3; ++second) {
    const auto plan = Tell(workers, second);
    EXPECT_LE(plan.size(), DeletionCosts::kMostAtOnce);
    for (const PodCost& cost : plan) told.insert(cost.pod);
  }
  EXPECT_THAT(told, SizeIs(40));
}

TEST_F(DeletionCostsTest, AnotherTermTellsThemAnew) {
  Tell({Engine("a", 7)}, 0);
  costs_.Forget();
  EXPECT_THAT(Tell({Engine("a", 7)}, 1), SizeIs(1));
}

}  // namespace
}  // namespace freshet
