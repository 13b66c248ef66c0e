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
  // A background delivery that a publication cancels.
  void Cancel() {
    clock_.Advance(absl::Minutes(1));
    absl::Time next;
    const std::optional<Delivery> delivery = members_.BeginCatchUp(next);
    ASSERT_TRUE(delivery.has_value());
    members_.Note(*delivery, {{member_.worker, {absl::CancelledError("published"), {}}}}, false);
    members_.EndCatchUp();
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
  Cancel();
  EXPECT_THAT(Publish(), IsEmpty());
  Cancel();
  EXPECT_THAT(Publish(), ElementsAre(member_));
}

TEST_F(ClusterMembersTest, PublicationsWaitLessAndLessOftenForAMemberThatDoesNotAnswer) {
  for (const int most : {2, 4, 8}) {
    for (int i = 1; i <= most; ++i) {
      Cancel();
      ASSERT_EQ(Publish().size(), i == most ? 1 : 0) << i << " of " << most;
    }
    Fail(absl::DeadlineExceededError("no sign of life"));
  }
}

}  // namespace
}  // namespace freshet
