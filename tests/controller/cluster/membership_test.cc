#include "controller/cluster/membership.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace freshet {
namespace {

using testing::HasSubstr;

constexpr absl::Duration kBeat = absl::Milliseconds(500);

cluster::v1::RegisterRequest Request(const std::string& name, const std::string& incarnation) {
  cluster::v1::RegisterRequest request;
  request.set_role(cluster::v1::ROLE_ROLLOUT);
  request.set_worker(name);
  request.set_incarnation(incarnation);
  return request;
}

class MembershipTest : public testing::Test {
 protected:
  MembershipTest() : members_(MembershipOptions(), {}, now_) {
    Pass(MembershipOptions().rejoin_grace);
  }
  int64_t Register(const std::string& name, const std::string& incarnation = "one") {
    const auto plan = members_.PlanRegister(Request(name, incarnation), now_);
    EXPECT_TRUE(plan.ok()) << plan.status();
    members_.Register(*plan, now_);
    return plan->record.epoch();
  }
  absl::Status Beat(const std::string& name, int64_t epoch) {
    cluster::v1::WorkerStatus status;
    status.set_worker(name);
    status.set_epoch(epoch);
    return members_.OnStatus(status, now_);
  }
  // Advances the clock and checks the workers every 0.5 s.
  std::vector<LostWorker> Pass(absl::Duration time, const std::function<void()>& meanwhile = {}) {
    std::vector<LostWorker> all;
    for (const absl::Time end = now_ + time; now_ < end;) {
      now_ += std::min(kBeat, end - now_);
      if (meanwhile) meanwhile();
      for (const LostWorker& lost : members_.FindLost(now_)) {
        members_.MarkLost(lost, now_);
        all.push_back(lost);
      }
    }
    return all;
  }
  cluster::v1::ClusterRecord Stored() const {
    cluster::v1::ClusterRecord record;
    members_.Store(record);
    return record;
  }

  absl::Time now_ = absl::FromUnixSeconds(1000);
  Membership members_;
};

TEST_F(MembershipTest, EpochsGrowAndAreNeverUsedAgain) {
  const int64_t a = Register("a");
  const int64_t b = Register("b");
  EXPECT_LT(a, b);
  members_.Remove("b", b);
  EXPECT_LT(b, Register("b"));
  Membership next(MembershipOptions(), Stored(), now_);
  const auto plan = next.PlanRegister(Request("c", "one"), now_);
  EXPECT_GT(plan->record.epoch(), members_.last_epoch());
}

TEST_F(MembershipTest, AReplacedProcessCannotTakeItsNameBackWhileTheNewOneLives) {
  Register("a", "one");
  const int64_t second = Register("a", "two");
  EXPECT_TRUE(absl::IsAlreadyExists(members_.PlanRegister(Request("a", "one"), now_).status()));
  // This also holds after a controller restart and after a registration that kept its epoch.
  EXPECT_EQ(Register("a", "two"), second);
  Membership next(MembershipOptions(), Stored(), now_);
  EXPECT_TRUE(absl::IsAlreadyExists(next.PlanRegister(Request("a", "one"), now_).status()));
  ASSERT_EQ(Pass(absl::Seconds(3)).size(), 1U);
  EXPECT_GT(Register("a", "one"), second);
}

TEST_F(MembershipTest, ASilentWorkerIsLostAndOneThatBeatsIsNot) {
  const int64_t a = Register("a");
  Register("b");
  EXPECT_TRUE(Pass(absl::Milliseconds(1500), [&] { EXPECT_TRUE(Beat("a", a).ok()); }).empty());
  const auto lost = Pass(kBeat, [&] { EXPECT_TRUE(Beat("a", a).ok()); });
  ASSERT_EQ(lost.size(), 1U);
  EXPECT_EQ(lost[0].name, "b");
  EXPECT_THAT(lost[0].reason, HasSubstr("silent for 2s"));
}

TEST_F(MembershipTest, ALostWorkersEpochIsFenced) {
  const int64_t epoch = Register("a");
  Pass(absl::Seconds(3));
  EXPECT_EQ(Beat("a", epoch).code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(MembershipTest, ALostWorkerRejoinsUnderANewEpoch) {
  const int64_t epoch = Register("a");
  Pass(absl::Seconds(3));
  const int64_t next = Register("a");
  EXPECT_GT(next, epoch);
  EXPECT_TRUE(Beat("a", next).ok());
  EXPECT_EQ(Beat("a", epoch).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(members_.members().at("a").record.restarts(), 0) << "the same process";
}

TEST_F(MembershipTest, ANewProcessFencesTheFormerOneOfItsName) {
  const int64_t epoch = Register("a", "one");
  const int64_t next = Register("a", "two");
  EXPECT_GT(next, epoch);
  EXPECT_EQ(Beat("a", epoch).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(members_.members().at("a").record.restarts(), 1);
}

TEST_F(MembershipTest, AProcessThatComesBackInTimeKeepsItsEpoch) {
  const int64_t epoch = Register("a");
  EXPECT_EQ(Register("a"), epoch);
}

TEST_F(MembershipTest, ANameThatTheDatastoreRefusesGetsAnotherEpoch) {
  const int64_t epoch = Register("a");
  cluster::v1::WorkerStatus status;
  status.set_worker("a");
  status.set_epoch(epoch);
  status.set_refused_worker(LeaseName("a", epoch));
  ASSERT_TRUE(members_.OnStatus(status, now_).ok());
  const std::vector<LostWorker> lost = Pass(kBeat);
  ASSERT_EQ(lost.size(), 1U);
  EXPECT_EQ(lost[0].reason, "the datastore refuses its name");
  EXPECT_FALSE(Beat("a", epoch).ok());

  const int64_t next = Register("a");
  EXPECT_GT(next, epoch);
  // The first status may have been built before the worker took its new name.
  status.set_epoch(next);
  ASSERT_TRUE(members_.OnStatus(status, now_).ok());
  EXPECT_TRUE(Pass(kBeat).empty());
}

TEST_F(MembershipTest, ATakeoverInterruptsNobody) {
  const int64_t epoch = Register("a");
  Membership next(MembershipOptions(), Stored(), now_);
  const auto plan = next.PlanRegister(Request("a", "one"), now_ + absl::Seconds(4));
  ASSERT_TRUE(plan.ok());
  EXPECT_TRUE(plan->confirmed);
  EXPECT_EQ(plan->record.epoch(), epoch);
}

TEST_F(MembershipTest, AfterATakeoverWorkersHaveTimeToComeBack) {
  Register("a");
  Membership next(MembershipOptions(), Stored(), now_);
  const absl::Time taken = now_;
  std::vector<LostWorker> lost;
  while (lost.empty()) {
    now_ += kBeat;
    lost = next.FindLost(now_);
    ASSERT_LT(now_ - taken, absl::Seconds(10));
  }
  EXPECT_EQ(now_ - taken, MembershipOptions().rejoin_grace);
}

TEST_F(MembershipTest, AfterAStallOfThisProcessNobodyIsLostAtOnce) {
  const int64_t epoch = Register("a");
  now_ += absl::Seconds(30);  // e.g. SIGSTOP: no heartbeat could be received
  EXPECT_TRUE(members_.FindLost(now_).empty());
  EXPECT_TRUE(Beat("a", epoch).ok());
  EXPECT_TRUE(Pass(absl::Milliseconds(1500)).empty());
  EXPECT_EQ(Pass(kBeat).size(), 1U);
}

TEST_F(MembershipTest, LostWorkersAreForgottenLater) {
  Register("a");
  Pass(absl::Seconds(3));
  EXPECT_TRUE(members_.FindForgettable(now_).empty());
  now_ += MembershipOptions().forget_after;
  EXPECT_EQ(members_.FindForgettable(now_).size(), 1U);
  members_.Forget("a");
  EXPECT_TRUE(members_.members().empty());
}

TEST_F(MembershipTest, HostileRegistrationsAreRefused) {
  const auto code = [this](const cluster::v1::RegisterRequest& request) {
    return members_.PlanRegister(request, now_).status().code();
  };
  for (const std::string& name :
       {std::string(), std::string("a#1"), std::string("a b"), std::string(129, 'a')}) {
    EXPECT_EQ(code(Request(name, "one")), absl::StatusCode::kInvalidArgument) << name;
  }
  EXPECT_EQ(code(Request("a", "")), absl::StatusCode::kInvalidArgument);
  auto request = Request("a", "one");
  request.set_role(cluster::v1::ROLE_CONTROLLER);
  EXPECT_EQ(code(request), absl::StatusCode::kInvalidArgument);
  for (const std::string& site : {std::string("eu west"), std::string(129, 'a')}) {
    request = Request("a", "one");
    request.set_site(site);
    EXPECT_EQ(code(request), absl::StatusCode::kInvalidArgument) << site;
  }
}

TEST_F(MembershipTest, TheSiteOfAWorkerIsKept) {
  cluster::v1::RegisterRequest request = Request("a", "one");
  request.set_site("eu-west.1");
  const auto plan = members_.PlanRegister(request, now_);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->record.site(), "eu-west.1");
}

TEST_F(MembershipTest, ThereIsRoomForSoManyWorkersOnly) {
  MembershipOptions options;
  options.max_workers = 1;
  Membership members(options, {}, now_);
  members.Register(*members.PlanRegister(Request("a", "one"), now_), now_);
  EXPECT_EQ(members.PlanRegister(Request("b", "one"), now_).status().code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(members.PlanRegister(Request("a", "two"), now_).ok());
}

}  // namespace
}  // namespace freshet
