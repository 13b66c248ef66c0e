#include "datastore/staleness_policy.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace freshet {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

StalenessOptions Options(int64_t eta, int64_t b, Disposition disposition = Disposition::kWait,
                         int64_t max_in_flight = 1000) {
  return {eta, disposition, b, max_in_flight};
}

struct AdmissionCase {
  const char* name;
  int64_t eta;
  int64_t b;
  int64_t committed;
  int64_t engine;
  int64_t outstanding;
  bool admit;
};
void PrintTo(const AdmissionCase& c, std::ostream* os) { *os << c.name; }

class AdmissionTable : public testing::TestWithParam<AdmissionCase> {};

TEST_P(AdmissionTable, AdmitsIffOutstandingIsBelowTheEnginesShare) {
  const AdmissionCase& c = GetParam();
  AdmissionState state;
  state.committed = {0, c.committed};
  state.engine = {0, c.engine};
  state.outstanding = c.outstanding;
  state.last_step = 1000;
  const AdmissionDecision decision = DecideAdmission(Options(c.eta, c.b), state);
  EXPECT_EQ(decision.admit, c.admit) << decision.reason;
  EXPECT_FALSE(decision.reason.empty());
}

INSTANTIATE_TEST_SUITE_P(
    Table, AdmissionTable,
    testing::Values(AdmissionCase{"eta 0, empty", 0, 3, 5, 5, 0, true},
                    AdmissionCase{"eta 0, last slot", 0, 3, 5, 5, 2, true},
                    AdmissionCase{"eta 0, full", 0, 3, 5, 5, 3, false},               // 1 * 3
                    AdmissionCase{"eta 0, engine one behind", 0, 3, 5, 4, 0, false},  // 0 * 3
                    AdmissionCase{"eta 2, last slot", 2, 3, 5, 5, 8, true},
                    AdmissionCase{"eta 2, full", 2, 3, 5, 5, 9, false},  // 3 * 3
                    AdmissionCase{"eta 2, one behind, last slot", 2, 3, 5, 4, 5, true},
                    AdmissionCase{"eta 2, one behind, full", 2, 3, 5, 4, 6, false},  // 2 * 3
                    AdmissionCase{"eta 2, at the bound, last slot", 2, 3, 5, 3, 2, true},
                    AdmissionCase{"eta 2, at the bound, full", 2, 3, 5, 3, 3, false},  // 1 * 3
                    AdmissionCase{"eta 2, beyond the bound", 2, 3, 5, 2, 0, false},
                    AdmissionCase{"eta 2, far beyond", 2, 3, 5, 0, 0, false},
                    AdmissionCase{"engine ahead", 2, 3, 5, 6, 0, false}));

TEST(DecideAdmission, RefusesOtherLineages) {
  AdmissionState state;
  state.committed = {2, 5};
  state.last_step = 1000;
  state.engine = {1, 5};
  EXPECT_THAT(DecideAdmission(Options(2, 2), state).reason, HasSubstr("older lineage"));
  state.engine = {1, 50};
  EXPECT_FALSE(DecideAdmission(Options(2, 2), state).admit);
  state.engine = {3, 5};
  EXPECT_THAT(DecideAdmission(Options(2, 2), state).reason, HasSubstr("ahead of"));
  state.engine = {2, 5};
  EXPECT_TRUE(DecideAdmission(Options(2, 2), state).admit);
}

TEST(DecideAdmission, HoldsTheInFlightLimit) {
  AdmissionState state;
  state.last_step = 1000;
  state.running = 1;
  EXPECT_TRUE(DecideAdmission(Options(2, 2, Disposition::kWait, 2), state).admit);
  state.running = 2;
  EXPECT_THAT(DecideAdmission(Options(2, 2, Disposition::kWait, 2), state).reason,
              HasSubstr("2 groups running of at most 2"));
}

TEST(DecideAdmission, NeverGoesBeyondTheLastStep) {
  AdmissionState state;
  state.committed = state.engine = {0, 9};
  state.last_step = 10;
  state.outstanding = 1;
  EXPECT_TRUE(DecideAdmission(Options(2, 2), state).admit);  // 18 + 1 < 20
  state.outstanding = 2;
  EXPECT_THAT(DecideAdmission(Options(2, 2), state).reason, HasSubstr("last step"));
}

TEST(DecideAdmission, KeptGroupsNeedNoSlotButAnEngineThatIsNotOlder) {
  AdmissionState state;
  state.committed = {0, 5};
  state.outstanding = 9;  // (2 + 1) * 3: no room for a new group
  state.last_step = 6;
  state.kept_version = 4;
  state.engine = {0, 4};
  EXPECT_TRUE(DecideAdmission(Options(2, 3), state).admit);
  state.engine = {0, 3};
  EXPECT_FALSE(DecideAdmission(Options(2, 3), state).admit);
  state.kept_version = 1;
  state.engine = {0, 2};  // its tokens would exceed the bound
  EXPECT_FALSE(DecideAdmission(Options(2, 3), state).admit);
}

TEST(DecideConsumption, TakesTheOldestReadyByVersionThenOrdinal) {
  const auto decision = DecideConsumption(
      Options(4, 2), 5, {{1, 4, 4, true}, {9, 3, 3, true}, {2, 4, 4, true}, {3, 5, 5, true}});
  ASSERT_TRUE(decision.claim) << decision.reason;
  EXPECT_THAT(decision.ordinals, ElementsAre(1, 9));
}

TEST(DecideConsumption, NamesTheOldestGroupWhenThereAreTooFew) {
  const auto decision =
      DecideConsumption(Options(1, 2), 5, {{1, 5, 5, true}, {3, 5, 5, false}, {4, 4, 4, false}});
  EXPECT_FALSE(decision.claim);
  EXPECT_EQ(decision.waits_for, 4);
  EXPECT_THAT(decision.reason, HasSubstr("step 6 needs 1 more groups: 1 of 2 complete, 2 "));
}

TEST(DecideConsumption, NamesNobodyWhenNothingIsOutstanding) {
  const auto decision = DecideConsumption(Options(1, 2), 0, {});
  EXPECT_FALSE(decision.claim);
  EXPECT_FALSE(decision.waits_for.has_value());
  EXPECT_THAT(decision.ordinals, IsEmpty());
}

TEST(DecideConsumption, NeverTakesAGroupBeyondTheBound) {
  for (const Disposition disposition :
       {Disposition::kWait, Disposition::kDrop, Disposition::kRequeue}) {
    const auto at = DecideConsumption(Options(1, 1, disposition), 5, {{1, 4, 9, true}});
    EXPECT_TRUE(at.claim);
    const auto beyond = DecideConsumption(Options(1, 1, disposition), 5, {{1, 3, 9, true}});
    EXPECT_FALSE(beyond.claim) << Name(disposition);
  }
}

TEST(DecideConsumption, MaskTakesAGroupAsLongAsOneTokenIsYoungEnough) {
  const StalenessOptions options = Options(1, 1, Disposition::kMask);
  EXPECT_TRUE(DecideConsumption(options, 5, {{1, 0, 4, true}}).claim);
  EXPECT_FALSE(DecideConsumption(options, 5, {{1, 0, 3, true}}).claim);
}

// V = 10, eta = 2, B = 2. After claiming groups 1 and 2, at most 0 groups may remain with version
// <= 8, 2 with version <= 9 and 4 with version <= 10.
struct WaitCase {
  const char* name;
  std::vector<int64_t> left;  // versions of running groups
  bool claim;
  int64_t waits_for;  // ordinal: 100 + index into `left`
};
void PrintTo(const WaitCase& c, std::ostream* os) { *os << c.name; }

class WaitTable : public testing::TestWithParam<WaitCase> {};

TEST_P(WaitTable, ClaimsIffTheRestFitsTheNextSteps) {
  const WaitCase& c = GetParam();
  std::vector<GroupAge> groups = {{1, 10, 10, true}, {2, 10, 10, true}};
  for (size_t i = 0; i < c.left.size(); ++i) {
    groups.push_back({100 + static_cast<int64_t>(i), c.left[i], c.left[i], false});
  }
  const auto decision = DecideConsumption(Options(2, 2), 10, groups);
  EXPECT_EQ(decision.claim, c.claim) << decision.reason;
  if (!c.claim) {
    EXPECT_EQ(decision.waits_for, c.waits_for) << decision.reason;
    EXPECT_THAT(decision.reason, HasSubstr("step 11 waits for group"));
  }
  StalenessOptions drop = Options(2, 2, Disposition::kDrop);
  EXPECT_TRUE(DecideConsumption(drop, 10, groups).claim);  // never waits
}

INSTANTIATE_TEST_SUITE_P(
    Table, WaitTable,
    testing::Values(WaitCase{"nothing left", {}, true, 0},
                    WaitCase{"one at its last chance", {8}, false, 100},
                    WaitCase{"beyond its last chance", {7}, false, 100},
                    WaitCase{"two may go in the next step", {9, 9}, true, 0},
                    WaitCase{"three may not", {9, 9, 9}, false, 100},
                    WaitCase{"four of the newest", {10, 10, 10, 10}, true, 0},
                    WaitCase{"five of the newest", {10, 10, 10, 10, 10}, false, 100},
                    WaitCase{"old and new count together", {10, 10, 10, 9, 9}, false, 103},
                    WaitCase{"mixed within the counts", {10, 10, 9, 9}, true, 0}));

TEST(DecideConsumption, ReadyGroupsThatStayBehindCountToo) {
  // Six ready groups of version 9: two are claimed, four remain, and step 12 can take only two.
  std::vector<GroupAge> groups;
  for (int64_t i = 0; i < 6; ++i) groups.push_back({i, 9, 9, true});
  EXPECT_FALSE(DecideConsumption(Options(2, 2), 10, groups).claim);
  groups.resize(4);
  EXPECT_TRUE(DecideConsumption(Options(2, 2), 10, groups).claim);
}

TEST(DecideDisposition, FollowsThePolicyFromTheBoundOn) {
  struct Case {
    const char* name;
    Disposition disposition;
    GroupAge group;  // at version 10, eta 2
    int64_t requeues;
    Verdict verdict;
    const char* reason;
  };
  const Case cases[] = {
      {"wait keeps all", Disposition::kWait, {1, 0, 0, true}, 0, Verdict::kKeep, ""},
      {"drop at the bound", Disposition::kDrop, {1, 8, 8, false}, 0, Verdict::kKeep, ""},
      {"drop beyond", Disposition::kDrop, {1, 7, 9, false}, 0, Verdict::kDrop, "too_old"},
      {"drop ready ones too", Disposition::kDrop, {1, 7, 9, true}, 0, Verdict::kDrop, "too_old"},
      {"requeue at the bound", Disposition::kRequeue, {1, 8, 8, true}, 0, Verdict::kKeep, ""},
      {"requeue beyond", Disposition::kRequeue, {1, 7, 7, true}, 2, Verdict::kRequeue, "too_old"},
      {"requeue no more", Disposition::kRequeue, {1, 7, 7, true}, 3, Verdict::kDead, "too_slow"},
      {"mask running", Disposition::kMask, {1, 0, 0, false}, 0, Verdict::kKeep, ""},
      {"mask some", Disposition::kMask, {1, 0, 8, true}, 0, Verdict::kKeep, ""},
      {"mask all", Disposition::kMask, {1, 0, 7, true}, 0, Verdict::kDrop, "fully_masked"},
  };
  for (const Case& c : cases) {
    const auto decision =
        DecideDisposition(Options(2, 2, c.disposition), 10, c.group, c.requeues, 3);
    EXPECT_EQ(decision.verdict, c.verdict) << c.name;
    EXPECT_EQ(decision.reason, c.reason) << c.name;
  }
}

constexpr LeaseLimits kLimits{3, 2, absl::Seconds(30)};
const absl::Time kNow = absl::UnixEpoch() + absl::Hours(1);

TEST(DecideLeaseEnd, CountsLeasesThatFailedWithoutASample) {
  struct Case {
    const char* name;
    LeaseEnd end;
    bool delivered;
    int64_t failures;  // so far, of at most 3
    int64_t counted;
    bool dead;
  };
  const Case cases[] = {
      {"returned", LeaseEnd::kReturned, false, 2, 2, false},
      {"handed back", LeaseEnd::kHandedBack, false, 2, 2, false},
      {"failed", LeaseEnd::kFailed, false, 0, 1, false},
      {"failed with a sample", LeaseEnd::kFailed, true, 2, 2, false},
      {"failed once more", LeaseEnd::kFailed, false, 2, 3, true},
      {"expired with a sample", LeaseEnd::kExpired, true, 2, 2, false},
      {"expired once more", LeaseEnd::kExpired, false, 2, 2, true},
      {"worker lost", LeaseEnd::kWorkerLost, false, 1, 1, false},
      {"worker lost once more", LeaseEnd::kWorkerLost, false, 2, 2, true},
      {"worker lost with a sample", LeaseEnd::kWorkerLost, true, 2, 2, false},
  };
  for (const Case& c : cases) {
    LeaseHistory history;
    history.failures = c.failures;
    const LeaseEndDecision decision =
        DecideLeaseEnd(c.end, c.delivered, /*loss=*/1, kNow, history, kLimits);
    EXPECT_EQ(decision.history.failures, c.counted) << c.name;
    EXPECT_EQ(decision.dead.has_value(), c.dead) << c.name;
    if (!c.dead) continue;
    EXPECT_EQ(decision.dead, LeaseEnd::kFailed) << c.name;
    EXPECT_EQ(decision.count, 3) << c.name;
  }
}

TEST(DecideLeaseEnd, LossesCountInARow) {
  LeaseHistory history;
  history.losses = 2;
  history.last_loss = 7;
  const auto after = [&](int64_t loss, bool delivered = false) {
    return DecideLeaseEnd(LeaseEnd::kWorkerLost, delivered, loss, kNow, history, kLimits);
  };
  EXPECT_EQ(after(8).history.losses, 3);
  EXPECT_EQ(after(8).history.last_loss, 8);
  EXPECT_EQ(after(8).dead, LeaseEnd::kFailed);
  // The history has no part in loss 8, so the losses are not consecutive.
  EXPECT_EQ(after(9).history.losses, 1);
  EXPECT_EQ(after(9).dead, std::nullopt);
  EXPECT_EQ(after(8, /*delivered=*/true).history.losses, 0);
}

TEST(DecideLeaseEnd, HandBacksAndLossesCountOnceInALeaseTtl) {
  struct Case {
    const char* name;
    LeaseEnd end;
    bool delivered;
    absl::Duration since;  // since the last counted one
    int64_t counted;       // expected count, of at most 2; one counted before
    bool dead;
  };
  const Case cases[] = {
      {"at once", LeaseEnd::kHandedBack, false, absl::Seconds(29), 1, false},
      {"later", LeaseEnd::kHandedBack, false, absl::Seconds(30), 2, true},
      {"lost at once", LeaseEnd::kExpired, false, absl::Seconds(1), 1, false},
      {"lost later", LeaseEnd::kWorkerLost, false, absl::Seconds(30), 2, true},
      {"failed", LeaseEnd::kFailed, false, absl::Hours(1), 1, false},
      {"returned", LeaseEnd::kReturned, false, absl::Hours(1), 1, false},
      {"gave a sample", LeaseEnd::kHandedBack, true, absl::Hours(1), 0, false},
  };
  for (const Case& c : cases) {
    LeaseHistory history;
    history.hand_backs = 1;
    history.counted_at = kNow - c.since;
    const LeaseEndDecision decision =
        DecideLeaseEnd(c.end, c.delivered, /*loss=*/1, kNow, history, kLimits);
    EXPECT_EQ(decision.history.hand_backs, c.counted) << c.name;
    EXPECT_EQ(decision.history.counted_at, c.counted == 2 ? kNow : history.counted_at) << c.name;
    ASSERT_EQ(decision.dead.has_value(), c.dead) << c.name;
    if (c.dead) {
      EXPECT_EQ(decision.dead, LeaseEnd::kHandedBack) << c.name;
    }
  }
  const LeaseEndDecision first =
      DecideLeaseEnd(LeaseEnd::kHandedBack, false, 0, kNow, LeaseHistory{}, kLimits);
  EXPECT_EQ(first.history.hand_backs, 1);
  EXPECT_EQ(first.history.counted_at, kNow);
}

TEST(DecideLeaseEnd, AGroupGivesUpItsPlaceFromTheSecondHandBackOn) {
  LeaseLimits limits = kLimits;
  limits.max_hand_backs = 10;
  LeaseHistory history;
  const auto behind = [&](LeaseEnd end, absl::Time now) {
    const LeaseEndDecision decision = DecideLeaseEnd(end, false, 1, now, history, limits);
    history = decision.history;
    return decision.behind;
  };
  EXPECT_FALSE(behind(LeaseEnd::kHandedBack, kNow));
  EXPECT_FALSE(behind(LeaseEnd::kHandedBack, kNow + absl::Seconds(29)));
  EXPECT_TRUE(behind(LeaseEnd::kHandedBack, kNow + absl::Seconds(30)));
  EXPECT_TRUE(behind(LeaseEnd::kHandedBack, kNow + absl::Seconds(31)));
  // Lost and stopped workers must not change the order: eta = 0 is deterministic.
  EXPECT_FALSE(behind(LeaseEnd::kReturned, kNow + absl::Seconds(90)));
  EXPECT_FALSE(behind(LeaseEnd::kWorkerLost, kNow + absl::Seconds(90)));
}

TEST(QueuePlace, IsBehindWhatWaitsAndSeparatesNeighbours) {
  EXPECT_EQ(QueuePlace(40, 3, 2, 8), 41);
  EXPECT_EQ(QueuePlace(40, 4, 2, 8), 49);
  // Any two of 64 neighbours are separated within six hand-backs.
  for (int64_t one = 100; one < 164; ++one) {
    for (int64_t other = one + 1; other < 164; ++other) {
      bool parted = false;
      for (int64_t n = 2; n < 8; ++n)
        parted |= QueuePlace(0, one, n, 8) != QueuePlace(0, other, n, 8);
      EXPECT_TRUE(parted) << one << " and " << other;
    }
  }
}

TEST(DecideRowEnd, CountsFailuresAndLongSeriesOfLostWorkers) {
  struct Case {
    const char* name;
    RowEnd end;
    RowCounts before;  // of at most 3 failures
    RowCounts after;
    bool dead;
  };
  const Case cases[] = {
      {"failed", RowEnd::kFailed, {1, 0}, {2, 0}, false},
      {"failed once more", RowEnd::kFailed, {2, 0}, {3, 0}, true},
      {"failed after losses", RowEnd::kFailed, {0, 3}, {1, 0}, false},
      {"handed back", RowEnd::kReturned, {2, 0}, {2, 0}, false},
      {"handed back after losses", RowEnd::kReturned, {2, 5}, {2, 0}, false},
      {"expired", RowEnd::kExpired, {2, 0}, {2, 0}, false},
      {"expired after losses", RowEnd::kExpired, {2, 5}, {2, 5}, false},
      {"first worker lost", RowEnd::kWorkerLost, {2, 0}, {2, 1}, false},
      {"third worker lost", RowEnd::kWorkerLost, {0, 2}, {0, 3}, false},
      {"fourth worker lost", RowEnd::kWorkerLost, {0, 3}, {1, 4}, false},
      {"sixth worker lost", RowEnd::kWorkerLost, {2, 5}, {3, 6}, true},
  };
  for (const Case& c : cases) {
    const RowEndDecision decision = DecideRowEnd(c.end, c.before, 3);
    EXPECT_EQ(decision.counts.failures, c.after.failures) << c.name;
    EXPECT_EQ(decision.counts.losses, c.after.losses) << c.name;
    EXPECT_EQ(decision.dead, c.dead) << c.name;
  }
}

// 2 tokens of version 3 (the first is an observation), 2 of version 4 and 1 of version 6.
Response MixedResponse() {
  Response response;
  response.response_ids = {1, 2, 3, 4, 5};
  response.behavior_logprobs.assign(5, -1.0f);
  response.loss_mask = {0, 1, 1, 1, 1};
  response.spans = {{{0, 3}, 0, 2}, {{0, 4}, 2, 4}, {{0, 6}, 4, 5}};
  return response;
}

TEST(ComputeLossWindow, MaskRemovesTokensOlderThanTheBound) {
  const LossWindow window =
      ComputeLossWindow(Options(2, 1, Disposition::kMask), 6, MixedResponse());
  EXPECT_THAT(window.loss_mask, ElementsAre(0, 0, 1, 1, 1));  // version 3 < 6 - 2
  EXPECT_EQ(window.loss_tokens, 3);
  EXPECT_EQ(window.masked_tokens, 1);
  EXPECT_EQ(window.min_version, 4);
  EXPECT_EQ(window.max_version, 6);
}

TEST(ComputeLossWindow, OtherDispositionsKeepTheResponsesOwnMask) {
  const LossWindow window = ComputeLossWindow(Options(2, 1), 6, MixedResponse());
  EXPECT_THAT(window.loss_mask, ElementsAre(0, 1, 1, 1, 1));
  EXPECT_EQ(window.loss_tokens, 4);
  EXPECT_EQ(window.masked_tokens, 0);
  EXPECT_EQ(window.min_version, 3);
}

TEST(ComputeLossWindow, WithoutALossTokenThereIsNoStaleness) {
  const LossWindow window =
      ComputeLossWindow(Options(0, 1, Disposition::kMask), 9, MixedResponse());
  EXPECT_EQ(window.loss_tokens, 0);
  EXPECT_EQ(window.masked_tokens, 4);
  EXPECT_EQ(window.min_version, 9);
  EXPECT_EQ(window.max_version, 9);
}

TEST(StalenessOptions, ValidateNamesTheOption) {
  EXPECT_TRUE(Options(0, 1).Validate().ok());
  EXPECT_THAT(std::string(Options(-1, 1).Validate().message()), HasSubstr("staleness.max: -1"));
  EXPECT_THAT(std::string(Options(0, 0).Validate().message()), HasSubstr("groups_per_step: 0"));
  EXPECT_THAT(std::string(Options(0, 1, Disposition::kWait, 0).Validate().message()),
              HasSubstr("max_in_flight: 0"));
  EXPECT_FALSE(Options(int64_t{1} << 40, 1).Validate().ok());
}

TEST(Disposition, NamesRoundTrip) {
  for (const char* name : {"wait", "drop", "requeue", "mask"}) {
    EXPECT_STREQ(Name(*ParseDisposition(name)), name);
  }
  EXPECT_FALSE(ParseDisposition("Wait").ok());
}

}  // namespace
}  // namespace freshet
