#include "controller/cluster/leadership.h"

#include <atomic>
#include <functional>
#include <string>
#include <thread>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/controller/jobs/driver/cluster_fakes.h"
#include "tests/testing/fake_clock.h"
#include "tests/testing/in_memory_leader_lease.h"

namespace freshet {
namespace {

constexpr absl::Duration kTtl = absl::Milliseconds(100);

// A lease that can lose requests (`down`) or answers (`lossy`).
class FlakyLease final : public LeaderLease {
 public:
  explicit FlakyLease(LeaderLease& lease) : lease_(lease) {}
  absl::StatusOr<LeaseState> TryAcquire(const std::string& candidate, const std::string& address,
                                        absl::Duration ttl) override {
    ++asked;
    if (down) return absl::UnavailableError("the datastore is away");
    const auto state = lease_.TryAcquire(candidate, address, ttl);
    if (on_acquired) on_acquired();
    if (lossy) return absl::UnavailableError("the answer is lost");
    return state;
  }
  absl::StatusOr<LeaseState> Look() override {
    ++looked;
    if (down) return absl::UnavailableError("the datastore is away");
    return lease_.Look();
  }
  absl::Status Release(const std::string& candidate, int64_t token) override {
    if (down || lossy) return absl::UnavailableError("the datastore is away");
    return lease_.Release(candidate, token);
  }
  std::function<void()> on_acquired;  // called before TryAcquire returns; set before use
  std::atomic<bool> down{false};
  std::atomic<bool> lossy{false};
  std::atomic<int> asked{0};
  std::atomic<int> looked{0};

 private:
  LeaderLease& lease_;
};

// A candidate and the callbacks it received.
struct Candidate {
  Candidate(LeaderLease& lease, const Clock& clock, const std::string& name, int refused = 0)
      : refusals(refused),
        leadership(lease, clock, {name, kTtl, kTtl / 10},
                   {[this](int64_t token) {
                      if (refusals > 0) {
                        --refusals;
                        return absl::UnavailableError("records are away");
                      }
                      tokens = token;
                      leading = true;
                      return absl::OkStatus();
                    },
                    [this](const std::string&) { leading = false; },
                    {}}) {
    leadership.Start(name + ":7070");
  }
  std::atomic<bool> leading{false};
  std::atomic<int64_t> tokens{0};
  std::atomic<int> refusals;
  Leadership leadership;
};

class LeadershipTest : public testing::Test {
 protected:
  FakeClock clock_;
  InMemoryLeaderLease lease_{clock_};
};

TEST_F(LeadershipTest, OneLeadsAndTheOtherKnowsIt) {
  Candidate a(lease_, clock_, "a");
  ASSERT_TRUE(Eventually([&] { return a.leading.load(); }));
  Candidate b(lease_, clock_, "b");
  ASSERT_TRUE(Eventually([&] { return b.leadership.Get().address == "a:7070"; }));
  EXPECT_FALSE(b.leading);
  EXPECT_FALSE(b.leadership.Get().leading);
  EXPECT_TRUE(a.leadership.Get().leading);
}

TEST_F(LeadershipTest, AStopHandsOverAtOnceUnderALargerToken) {
  Candidate a(lease_, clock_, "a");
  ASSERT_TRUE(Eventually([&] { return a.leading.load(); }));
  Candidate b(lease_, clock_, "b");
  a.leadership.Stop();
  EXPECT_FALSE(a.leading);
  ASSERT_TRUE(Eventually([&] { return b.leading.load(); }));
  EXPECT_GT(b.tokens, a.tokens);
}

TEST_F(LeadershipTest, AnotherLeadsWhileATermTakesLongToEnd) {
  Notification ends;
  std::atomic<bool> ended{false};
  Leadership slow(lease_, clock_, {"slow", kTtl, kTtl / 10},
                  {[](int64_t) { return absl::OkStatus(); },
                   [&](const std::string&) {
                     EXPECT_TRUE(ends.WaitFor(absl::Seconds(60)));
                     ended = true;
                   },
                   {}});
  slow.Start("slow:7070");
  ASSERT_TRUE(Eventually([&] { return slow.Get().leading; }));
  Candidate b(lease_, clock_, "b");
  std::jthread stop([&] { slow.Stop(); });
  EXPECT_TRUE(Eventually([&] { return b.leading.load(); })) << "at once: the clock stands still";
  EXPECT_TRUE(Eventually([&] { return slow.Get().address == "b:7070"; })) << "it names the other";
  EXPECT_FALSE(ended);
  ends.Notify();
}

TEST_F(LeadershipTest, ALapsedLeaseIsNotTakenBackWhileItsTermEnds) {
  FlakyLease flaky(lease_);
  Notification ends;
  std::atomic<int> gained{0};
  std::atomic<bool> losing{false};
  Leadership slow(flaky, clock_, {"slow", kTtl, kTtl / 10},
                  {[&](int64_t) {
                     ++gained;
                     return absl::OkStatus();
                   },
                   [&](const std::string&) {
                     losing = true;
                     EXPECT_TRUE(ends.WaitFor(absl::Seconds(60)));
                   },
                   {}});
  slow.Start("slow:7070");
  ASSERT_TRUE(Eventually([&] { return slow.Get().leading; }));
  flaky.down = true;
  clock_.Advance(kTtl);
  ASSERT_TRUE(Eventually([&] { return losing.load(); }));
  // A request in flight at the end of the term has finished by the second look.
  const int former_looks = flaky.looked;
  ASSERT_TRUE(Eventually([&] { return flaky.looked > former_looks + 1; }));
  const int former_asks = flaky.asked;
  flaky.down = false;
  const int looks = flaky.looked;
  ASSERT_TRUE(Eventually([&] { return flaky.looked > looks + 3; }));
  EXPECT_EQ(flaky.asked, former_asks) << "nobody holds the lease, and it does not want it";
  {
    Candidate b(lease_, clock_, "b");
    EXPECT_TRUE(Eventually([&] { return b.leading.load(); }));
    EXPECT_TRUE(Eventually([&] { return slow.Get().address == "b:7070"; }));
    EXPECT_EQ(gained, 1);
    ends.Notify();
  }
  EXPECT_TRUE(Eventually([&] { return gained == 2; })) << "it is a candidate again";
}

TEST_F(LeadershipTest, ALeaseThatCannotBeRenewedEndsHereWhenItEndsThere) {
  FlakyLease flaky(lease_);
  Candidate a(flaky, clock_, "a");
  ASSERT_TRUE(Eventually([&] { return a.leading.load(); }));
  flaky.down = true;
  clock_.Advance(kTtl - absl::Milliseconds(1));
  EXPECT_TRUE(a.leadership.Get().leading);
  clock_.Advance(absl::Milliseconds(1));
  EXPECT_FALSE(a.leadership.Get().leading) << "at once, before any thread has run";
  ASSERT_TRUE(Eventually([&] { return !a.leading; }));
  flaky.down = false;
  ASSERT_TRUE(Eventually([&] { return a.leading.load(); })) << "leads again when it can";
  EXPECT_EQ(a.tokens, 2);
}

TEST_F(LeadershipTest, ALeaseIsCountedFromBeforeItWasAskedFor) {
  FlakyLease slow(lease_);
  slow.on_acquired = [&] {
    clock_.Advance(kTtl * 6 / 10);  // the answer takes this long
    slow.down = true;
  };
  Candidate a(slow, clock_, "a");
  ASSERT_TRUE(Eventually([&] { return a.leading.load() && a.leadership.Get().leading; }));
  clock_.Advance(kTtl * 4 / 10);
  EXPECT_FALSE(a.leadership.Get().leading) << "another may lead";
}

TEST_F(LeadershipTest, NoTermBeginsUnderTheTokenOfOneThatEnded) {
  FlakyLease flaky(lease_);
  Candidate a(flaky, clock_, "a");
  ASSERT_TRUE(Eventually([&] { return a.leadership.Get().leading; }));
  const int64_t first = a.tokens;
  // The lease is renewed, but the answer is lost.
  flaky.lossy = true;
  clock_.Advance(kTtl * 9 / 10);
  const int asked = flaky.asked;
  ASSERT_TRUE(Eventually([&] { return flaky.asked > asked + 1; }));
  clock_.Advance(kTtl / 10);
  ASSERT_TRUE(Eventually([&] { return !a.leading; }));
  ASSERT_EQ(lease_.Look()->leader, "a") << "it holds the lease, and does not know it";
  flaky.lossy = false;
  ASSERT_TRUE(Eventually([&] { return a.leading.load(); }));
  EXPECT_GT(a.tokens, first);
}

TEST_F(LeadershipTest, ADatastoreThatIsAwayIsNamed) {
  FlakyLease flaky(lease_);
  flaky.down = true;
  Candidate one(flaky, clock_, "one");
  ASSERT_TRUE(Eventually([&] { return !one.leadership.Get().trouble.empty(); }));
  EXPECT_EQ(one.leadership.Get().trouble, "the datastore is away");
  flaky.down = false;
  ASSERT_TRUE(Eventually([&] { return one.leading.load(); }));
  EXPECT_EQ(one.leadership.Get().trouble, "");
}

TEST_F(LeadershipTest, ATermThatCannotBeginIsTriedAgain) {
  Candidate a(lease_, clock_, "a", /*refusals=*/3);
  ASSERT_TRUE(Eventually([&] {
    clock_.Advance(kTtl / 10);  // the retry interval
    return a.leading.load();
  }));
  EXPECT_EQ(a.refusals, 0);
}

TEST_F(LeadershipTest, ACandidateThatCannotBeginItsTermIsNoLeaderToTurnTo) {
  Candidate a(lease_, clock_, "a", /*refusals=*/1);
  ASSERT_TRUE(Eventually([&] {
    return a.leadership.Get().trouble == "this one cannot take over yet: records are away";
  }));
  const Leadership::View view = a.leadership.Get();
  EXPECT_FALSE(view.leading);
  EXPECT_EQ(view.address, "");
  EXPECT_EQ(view.leader, "");
  ASSERT_TRUE(Eventually([&] {
    clock_.Advance(kTtl / 10);
    return a.leading.load() && a.leadership.Get().leading;
  }));
  EXPECT_EQ(a.leadership.Get().address, "a:7070");
  EXPECT_EQ(a.leadership.Get().trouble, "");
}

TEST_F(LeadershipTest, AFormerLeaderThatLostTouchIsNoLeaderToTurnTo) {
  FlakyLease flaky(lease_);
  Candidate a(flaky, clock_, "a");
  ASSERT_TRUE(Eventually([&] { return a.leadership.Get().leading; }));
  flaky.down = true;
  clock_.Advance(kTtl);
  EXPECT_EQ(a.leadership.Get().address, "") << "at once";
  ASSERT_TRUE(Eventually([&] { return a.leadership.Get().trouble == "the datastore is away"; }));
}

TEST_F(LeadershipTest, TheLeaseOfAProcessThatDiedAtThisAddressIsNoLeaderToTurnTo) {
  ASSERT_TRUE(lease_.TryAcquire("a#1", "a:7070", kTtl).ok());
  std::atomic<int> asked{0};
  Leadership leadership(lease_, clock_, {"a#2", kTtl, kTtl / 10},
                        {[](int64_t) { return absl::OkStatus(); }, [](const std::string&) {},
                         [&](const absl::Status&) { ++asked; }});
  leadership.Start("a:7070");
  ASSERT_TRUE(Eventually([&] { return asked > 1; }));
  EXPECT_EQ(leadership.Get().address, "");
  EXPECT_FALSE(leadership.Get().leading);
}

TEST_F(LeadershipTest, StopIsIdempotent) {
  Candidate a(lease_, clock_, "a");
  a.leadership.Stop();
  a.leadership.Stop();
  EXPECT_FALSE(a.leadership.Get().leading);
}

}  // namespace
}  // namespace freshet
