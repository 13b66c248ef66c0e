#include "weights/grpc/cluster_members.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/fake_clock.h"

namespace freshet {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

class ClusterMembersTest : public testing::Test {
 protected:
  ClusterMembersTest() {
    EXPECT_TRUE(members_.Replace(1, {member_}));
    Fail(absl::UnavailableError("no route"));
    EXPECT_THAT(Publish(), IsEmpty()) << "it lags";
  }

  // The members that a publication of the next version serves.
  std::vector<WeightMember> Publish() {
    std::vector<WeightMember> served = members_.BeginPublication();
    ++version_;
    members_.Commit(Version());
    members_.EndPublication();
    return served;
  }
  void Fail(const absl::Status& status) {
    members_.Note({Version(), {member_}}, {{member_.worker, {status, {}}}}, false);
  }
  Delivery CatchUp() {
    clock_.Advance(absl::Minutes(1));
    absl::Time next;
    std::optional<Delivery> delivery = members_.BeginCatchUp(next);
    EXPECT_TRUE(delivery.has_value());
    return delivery.value_or(Delivery());
  }
  void EndCancelled(const Delivery& delivery) {
    members_.Note(delivery, {{member_.worker, {absl::CancelledError("ended"), {}}}}, false);
    members_.EndCatchUp();
  }
  // A publication that cancels a background delivery. Returns what it serves.
  std::vector<WeightMember> PublishDuringCatchUp() {
    const Delivery delivery = CatchUp();
    std::vector<WeightMember> served = Publish();
    EndCancelled(delivery);
    return served;
  }
  CommittedWeights Version() const {
    CommittedWeights version;
    version.snapshot.manifest.policy.version = version_;
    return version;
  }

  const WeightMember member_{"rollout-1", "host:1"};
  FakeClock clock_;
  ClusterMembers members_{{absl::Seconds(1), absl::Seconds(30)}, clock_, nullptr};
  int64_t version_ = 1;
};

TEST_F(ClusterMembersTest, AMemberWhoseDeliveriesAreCancelledAgainIsServedByAPublication) {
  EXPECT_THAT(PublishDuringCatchUp(), IsEmpty());
  EXPECT_THAT(PublishDuringCatchUp(), IsEmpty());
  EXPECT_THAT(Publish(), ElementsAre(member_));
}

TEST_F(ClusterMembersTest, PublicationsWaitLessAndLessOftenForAMemberThatDoesNotAnswer) {
  for (const int most : {2, 4, 8}) {
    for (int i = 1; i <= most; ++i) ASSERT_THAT(PublishDuringCatchUp(), IsEmpty()) << i;
    ASSERT_THAT(Publish(), ElementsAre(member_)) << most;
    Fail(absl::DeadlineExceededError("no sign of life"));
  }
}

TEST_F(ClusterMembersTest, AMemberThatCancelsDeliveriesItselfHasFailed) {
  for (int i = 0; i < 3; ++i) EndCancelled(CatchUp());
  absl::Time next;
  EXPECT_FALSE(members_.BeginCatchUp(next).has_value()) << "not at once";
  EXPECT_THAT(Publish(), IsEmpty());
}

}  // namespace
}  // namespace freshet
