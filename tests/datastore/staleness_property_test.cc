#include <string>

#include "base/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/datastore/naive_gate_simulation.h"
#include "tests/datastore/staleness_simulation.h"
#include "tests/testing/sanitized.h"

namespace freshet {
namespace {

constexpr uint64_t kHistories = 60 / kHistoryDivisor;

using testing::IsEmpty;

int64_t Entered(const SimulationResult& result, GroupState state) {
  return result.stats.transitions[static_cast<int>(state)];
}

int64_t Ended(const SimulationResult& result, const std::string& reason) {
  for (const auto& [name, count] : result.stats.ended_by_reason) {
    if (name == reason) return count;
  }
  return 0;
}

SimulationOptions HistoryOf(uint64_t seed, int64_t eta, Disposition disposition, bool faults) {
  SimulationOptions options;
  options.seed = seed;
  options.eta = eta;
  options.disposition = disposition;
  options.faults = faults;
  options.groups_per_step = 1 + static_cast<int64_t>(seed % 4);
  options.group_size = 1 + static_cast<int32_t>(seed % 3);
  options.num_engines = 1 + static_cast<int>(seed % 5);
  return options;
}

std::string Describe(const SimulationOptions& options) {
  return StrCat("seed ", options.seed, " eta ", options.eta, " disposition ",
                Name(options.disposition), " B ", options.groups_per_step, " G ",
                options.group_size);
}

class StalenessProperty : public testing::TestWithParam<int64_t> {};
INSTANTIATE_TEST_SUITE_P(Eta, StalenessProperty, testing::Values(0, 1, 2, 4));

TEST_P(StalenessProperty, WaitDropsNothingKeepsTheBoundAndFinishes) {
  int64_t expired = 0;
  int64_t died = 0;
  int64_t filtered = 0;
  int64_t deaths = 0;
  int64_t refused = 0;
  for (uint64_t seed = 0; seed < kHistories; ++seed) {
    const auto options = HistoryOf(seed, GetParam(), Disposition::kWait, /*faults=*/true);
    SCOPED_TRACE(Describe(options));
    const SimulationResult result = SimulateJob(options);
    ASSERT_TRUE(result.finished) << result.stuck;
    ASSERT_THAT(result.errors, IsEmpty());
    ASSERT_THAT(LedgerViolations(options, result.ledger), IsEmpty());
    ASSERT_EQ(Entered(result, GroupState::kDropped), 0);
    ASSERT_EQ(Ended(result, "dead(too_slow)"), 0);
    ASSERT_EQ(Entered(result, GroupState::kTrained), options.steps * options.groups_per_step);
    expired += result.stats.leases_expired;
    died += Ended(result, "dead(lease_failed)");
    filtered += Entered(result, GroupState::kFiltered);
    deaths += result.trainer_deaths;
    refused += result.refused_zombies;
  }
  // The histories contain the events they are meant to test.
  EXPECT_GT(expired, 100 / kHistoryDivisor);
  EXPECT_GE(died, 60 / kHistoryDivisor);
  EXPECT_GT(filtered, 100 / kHistoryDivisor);
  EXPECT_GT(deaths, 10 / kHistoryDivisor);
  EXPECT_GT(refused, 10 / kHistoryDivisor);
}

TEST_P(StalenessProperty, TheSimplerRuleDropsGroupsWhereOursDropsNone) {
  int64_t dropped = 0;
  int64_t trained = 0;
  for (uint64_t seed = 0; seed < 40 / kHistoryDivisor; ++seed) {
    auto options = HistoryOf(seed, GetParam(), Disposition::kWait, /*faults=*/false);
    options.groups_per_step = 4;
    SCOPED_TRACE(Describe(options));
    const SimulationResult ours = SimulateJob(options);
    ASSERT_TRUE(ours.finished) << ours.stuck;
    ASSERT_THAT(ours.errors, IsEmpty());
    ASSERT_THAT(LedgerViolations(options, ours.ledger), IsEmpty());
    ASSERT_THAT(ours.stats.ended_by_reason, IsEmpty());
    const NaiveGateResult naive = SimulateNaiveGate(options);
    ASSERT_TRUE(naive.finished);
    dropped += naive.dropped;
    trained += naive.trained;
  }
  EXPECT_GT(dropped, 0);
  const double share =
      100.0 * static_cast<double>(dropped) / static_cast<double>(dropped + trained);
  RecordProperty("simpler_rule_dropped_percent", StrCat(share));
  // Not a rare accident: more than 1 % of the groups at every eta.
  EXPECT_GT(share, 1.0);
}

TEST(StalenessAtZero, BoundZeroAdmitsExactlyBGroupsPerVersion) {
  for (uint64_t seed = 0; seed < kHistories; ++seed) {
    const auto options = HistoryOf(seed, 0, Disposition::kWait, /*faults=*/false);
    SCOPED_TRACE(Describe(options));
    const SimulationResult result = SimulateJob(options);
    ASSERT_TRUE(result.finished) << result.stuck;
    ASSERT_EQ(result.admitted.size(), static_cast<size_t>(options.steps));
    for (const auto& [version, groups] : result.admitted) {
      ASSERT_EQ(groups, options.groups_per_step) << "version " << version;
    }
  }
}

TEST_P(StalenessProperty, TheOtherDispositionsFinishAndKeepTheBound) {
  for (const Disposition disposition :
       {Disposition::kDrop, Disposition::kRequeue, Disposition::kMask}) {
    int64_t lost = 0;
    int64_t masked = 0;
    for (uint64_t seed = 0; seed < 20 / kHistoryDivisor; ++seed) {
      const auto options = HistoryOf(seed, GetParam(), disposition, /*faults=*/true);
      SCOPED_TRACE(Describe(options));
      const SimulationResult result = SimulateJob(options);
      ASSERT_TRUE(result.finished) << result.stuck;
      ASSERT_THAT(result.errors, IsEmpty());
      ASSERT_THAT(LedgerViolations(options, result.ledger), IsEmpty());
      lost += Ended(result, "dropped(too_old)") + Ended(result, "requeued(too_old)") +
              Ended(result, "dead(too_slow)");
      for (const LedgerRow& row : result.ledger) masked += row.masked_tokens;
    }
    // At eta 0 no group can be overtaken: each step needs all outstanding groups.
    if (GetParam() == 0) {
      EXPECT_EQ(lost, 0);
    } else if (disposition == Disposition::kMask) {
      EXPECT_GT(masked, 0);
    } else {
      EXPECT_GT(lost, 0) << Name(disposition);
    }
  }
}

TEST(StalenessAtZero, BoundZeroRepeatsItsHistory) {
  const auto options = HistoryOf(3, 0, Disposition::kWait, /*faults=*/true);
  const SimulationResult first = SimulateJob(options);
  const SimulationResult second = SimulateJob(options);
  ASSERT_EQ(first.ledger.size(), second.ledger.size());
  for (size_t i = 0; i < first.ledger.size(); ++i) {
    EXPECT_EQ(LedgerRowToJson(first.ledger[i]), LedgerRowToJson(second.ledger[i]));
  }
}

}  // namespace
}  // namespace freshet
