#include "controller/autoscale/autoscaler.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace freshet {
namespace {

using testing::HasSubstr;

const absl::Time kNow = absl::FromUnixSeconds(5000);

Member Engine(const std::string& name, const std::string& pool, double busy = 0) {
  Member member;
  member.record.set_name(name);
  member.record.set_role(cluster::v1::ROLE_ROLLOUT);
  member.record.set_pool(pool);
  member.connected = true;
  member.status.set_busy_ratio(busy);
  return member;
}

StoreOptions Store() {
  StoreOptions store;
  store.staleness = {2, Disposition::kWait, 8, 100};
  store.last_step = 10;
  return store;
}

TEST(MeasurePool, CountsTheEnginesOfThePool) {
  std::vector<Member> workers = {Engine("a", "p", 1), Engine("b", "p", 0.5), Engine("c", "q", 1)};
  workers.push_back(Engine("lost", "p", 1));
  workers.back().record.set_lost(true);
  workers.push_back(Engine("joins", "p"));
  workers.back().connected = false;
  workers.push_back(Engine("drains", "p", 1));
  workers.back().status.set_draining(true);
  workers.push_back(Engine("trainer", "p", 1));
  workers.back().record.set_role(cluster::v1::ROLE_TRAINER);
  const PoolSignals signals = MeasurePool("p", workers, nullptr, false, kNow);
  EXPECT_EQ(signals.ready, 2);
  EXPECT_EQ(signals.expected, 3) << "one of the former leader's comes back";
  EXPECT_DOUBLE_EQ(signals.busy, 1.5);
  EXPECT_EQ(signals.phase, JobPhase::kNone);
  EXPECT_EQ(MeasurePool("p", workers, nullptr, true, kNow).phase, JobPhase::kQueued);
}

TEST(MeasurePool, AnOldDemandSaysNothing) {
  JobDemand demand;
  demand.job = "a";
  demand.phase = JobPhase::kTrains;
  demand.measured = kNow - absl::Seconds(9);
  EXPECT_EQ(MeasurePool("p", {}, &demand, false, kNow).phase, JobPhase::kTrains);
  demand.measured = kNow - absl::Seconds(11);
  EXPECT_EQ(MeasurePool("p", {}, &demand, false, kNow).phase, JobPhase::kUnknown);
}

TEST(MeasureDemand, ReadsTheStoreAndTheTrainer) {
  StoreStats stats;
  stats.committed_version = 3;
  stats.outstanding = 24;
  JobSituation situation;
  situation.trainers = 1;
  situation.trainer_running = true;
  situation.trainer_busy = 0.75;
  situation.stats = &stats;
  situation.oldest_ready = kNow - absl::Seconds(4);
  JobDemand demand = MeasureDemand(Store(), situation, kNow);
  EXPECT_EQ(demand.phase, JobPhase::kTrains);
  EXPECT_DOUBLE_EQ(demand.trainer_wait, 0.25);
  EXPECT_EQ(demand.version, 3);
  EXPECT_EQ(demand.admissible, 24);
  EXPECT_EQ(demand.outstanding, 24);
  EXPECT_EQ(demand.queue_age, absl::Seconds(4));
  EXPECT_EQ(demand.measured, kNow);
  StoreOptions narrow = Store();
  narrow.staleness.max_in_flight = 5;
  EXPECT_EQ(MeasureDemand(narrow, situation, kNow).admissible, 5);
}

TEST(MeasureDemand, TellsThePhase) {
  StoreStats stats;
  stats.committed_version = 3;
  JobSituation trains;
  trains.trainers = 1;
  trains.trainer_running = true;
  trains.stats = &stats;
  const auto phase = [](const JobSituation& situation) {
    return MeasureDemand(Store(), situation, kNow).phase;
  };
  EXPECT_EQ(phase(trains), JobPhase::kTrains);
  JobSituation other = trains;
  other.paused = true;
  EXPECT_EQ(phase(other), JobPhase::kPaused);
  other = trains;
  other.trainers = 0;
  other.trainer_running = false;
  EXPECT_EQ(phase(other), JobPhase::kTrainerAway);
  other = trains;
  other.trainer_running = false;
  EXPECT_EQ(phase(other), JobPhase::kStarts);
  other = trains;
  other.opens = true;
  other.stats = nullptr;
  EXPECT_EQ(phase(other), JobPhase::kStarts);
  other = trains;
  other.stats = nullptr;
  EXPECT_EQ(phase(other), JobPhase::kUnknown);
  other = trains;
  other.trainer_done = true;
  EXPECT_EQ(phase(other), JobPhase::kEnds);
  stats.committed_version = 8;
  stats.outstanding = 16;  // all groups that the last two steps need
  EXPECT_EQ(phase(trains), JobPhase::kEnds);
}

TEST(Autoscaler, DecidesForPoolsWithBoundsAndShowsTheOthers) {
  Autoscaler autoscaler({{{"scales", {1, 4}}}, {}, absl::Seconds(1)});
  EXPECT_TRUE(autoscaler.Pools().empty());
  PoolInput input;
  input.workers = {Engine("a", "scales"), Engine("b", "by-hand"), Engine("c", "free")};
  input.workers.push_back(Engine("d", "free"));
  input.workers.back().record.set_lost(true);
  input.asked = {{"reward", 2}, {"rollout/by-hand", 5}, {"rollout/gone", 3}};
  autoscaler.Look(input, kNow);
  ASSERT_EQ(autoscaler.Pools().size(), 4U);
  EXPECT_EQ(autoscaler.Find("gone")->wanted, 3) << "none of its engines is left";
  EXPECT_EQ(autoscaler.Find("gone")->ready, 0);
  EXPECT_EQ(autoscaler.Find("scales")->wanted, 1);
  EXPECT_EQ(autoscaler.Find("scales")->reason, ScalingReason::kNoJob);
  EXPECT_EQ(autoscaler.Find("scales")->bounds, (PoolBounds{1, 4}));
  EXPECT_EQ(autoscaler.Find("by-hand")->wanted, 5);
  EXPECT_EQ(autoscaler.Find("by-hand")->ready, 1);
  EXPECT_EQ(autoscaler.Find("by-hand")->reason, ScalingReason::kFixed);
  EXPECT_FALSE(autoscaler.Find("by-hand")->bounds.has_value());
  EXPECT_EQ(autoscaler.Find("free")->wanted, 2) << "one of them was lost a while ago";
  EXPECT_EQ(autoscaler.Find("free")->ready, 1);
  EXPECT_FALSE(autoscaler.Find("other").has_value());
}

TEST(Autoscaler, LooksOncePerPeriod) {
  Autoscaler autoscaler({{}, {}, absl::Seconds(1)});
  EXPECT_TRUE(autoscaler.Due(kNow));
  autoscaler.Look({}, kNow);
  EXPECT_FALSE(autoscaler.Due(kNow + absl::Milliseconds(900)));
  EXPECT_TRUE(autoscaler.Due(kNow + absl::Seconds(1)));
}

TEST(Autoscaler, RemembersFromOneLookToTheNext) {
  Autoscaler autoscaler({{{"p", {1, 8}}}, {}, absl::Seconds(1)});
  PoolInput input;
  input.workers = {Engine("a", "p", 1), Engine("b", "p", 1)};
  JobDemand demand;
  demand.job = "j";
  demand.pool = "p";
  demand.phase = JobPhase::kTrains;
  demand.trainer_wait = 0.5;
  demand.admissible = 100;
  for (int second = 0; second < 40; ++second) {
    demand.version = second;
    demand.measured = kNow + absl::Seconds(second);
    input.jobs = {demand};
    autoscaler.Look(input, kNow + absl::Seconds(second));
  }
  EXPECT_EQ(autoscaler.Find("p")->wanted, 4);
  EXPECT_THAT(autoscaler.Find("p")->text, HasSubstr("the trainer waits 50 %"));
}

}  // namespace
}  // namespace freshet
