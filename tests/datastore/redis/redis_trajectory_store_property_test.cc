// Random histories on the in-memory store and on Redis at once: equal answers, call by call.
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>

#include "base/str_cat.h"
#include "datastore/memory/in_memory_trajectory_store.h"
#include "datastore/redis/redis_trajectory_store.h"
#include "gtest/gtest.h"
#include "tests/datastore/redis/redis_server.h"
#include "tests/datastore/redis/store_history.h"
#include "tests/testing/sanitized.h"

namespace freshet {
namespace {

// Per disposition. The server, which is not instrumented, takes most of the time.
constexpr uint64_t kHistories = kHistoryDivisor > 1 ? 50 : 500;
constexpr int kChoices = 80;  // per history, of one or a few calls each

class RedisTrajectoryStoreProperty : public testing::TestWithParam<Disposition> {
 protected:
  void SetUp() override {
    FRESHET_SKIP_WITHOUT_REDIS();
    auto server = RedisServer::Start({{"appendonly", "no"}});
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    client_ = server_->Client();
  }

  // Returns the first difference, or "".
  std::string RunHistory(uint64_t seed, HistoryCounts& counts) {
    FakeClock clock;
    const StoreOptions options = HistoryOptions(seed, GetParam());
    const StoreOrigin origin = HistoryOrigin(seed);
    RedisStoreSettings settings;
    settings.clock = &clock;
    settings.ledger_segment_rows = 8;
    auto memory = InMemoryTrajectoryStore::Create(options, origin, clock);
    if (!memory.ok()) return memory.status().ToString();
    auto redis = RedisTrajectoryStore::Create(client_, options, origin, settings);
    if (!redis.ok()) return redis.status().ToString();
    StoreHistory history(seed, **memory, **redis, clock, origin, counts);
    std::string difference = history.Run(kChoices);
    if (difference.empty()) difference = ChangeDifference(**memory, options.job);
    const auto flushed = client_->Command({"FLUSHALL"});
    if (!flushed.ok()) return flushed.status().ToString();
    return difference;
  }

  // Every change that the one store announced, the other one did.
  std::string ChangeDifference(TrajectoryStore& memory, const std::string& job) {
    for (int topic = 0; topic < kNumTopics; ++topic) {
      const auto count = client_->Command({"HGET", StrCat("{", job, "}:changes"), StrCat(topic)});
      if (!count.ok()) return count.status().ToString();
      const std::string redis = count->IsNil() ? "0" : count->text;
      const std::string ours = StrCat(memory.ChangeCount(static_cast<Topic>(topic)));
      if (redis != ours) return StrCat("changes of topic ", topic, ": ", ours, " and ", redis);
    }
    return "";
  }

  std::unique_ptr<RedisServer> server_;
  std::shared_ptr<RedisClient> client_;
};

INSTANTIATE_TEST_SUITE_P(Dispositions, RedisTrajectoryStoreProperty,
                         testing::Values(Disposition::kWait, Disposition::kDrop,
                                         Disposition::kRequeue, Disposition::kMask),
                         [](const auto& test) { return std::string(Name(test.param)); });

TEST_P(RedisTrajectoryStoreProperty, AnswersAsTheInMemoryStoreDoes) {
  HistoryCounts counts;
  const uint64_t first = 1'000'000 * static_cast<uint64_t>(GetParam());
  for (uint64_t seed = first; seed < first + kHistories; ++seed) {
    const std::string difference = RunHistory(seed, counts);
    ASSERT_EQ(difference, "") << "seed " << seed << ", disposition " << Name(GetParam());
  }
  EXPECT_GT(counts.trained, 2 * static_cast<int64_t>(kHistories));
  if (kHistoryDivisor > 1) return;
  // The histories, when none is left out, did contain what they are meant to contain.
  EXPECT_GT(counts.answers["redo"], 20);
  EXPECT_GT(counts.answers["diverged"], 20);
  EXPECT_GT(counts.answers["rows again"], 20);
  EXPECT_GT(counts.answers["OpenEpoch FAILED_PRECONDITION"], 20);
  EXPECT_EQ(counts.ends["dropped(too_old)"] > 20, GetParam() == Disposition::kDrop);
  EXPECT_EQ(counts.ends["requeued(too_old)"] > 20, GetParam() == Disposition::kRequeue);
  EXPECT_EQ(counts.ends["dead(too_slow)"] > 10, GetParam() == Disposition::kRequeue);
  EXPECT_EQ(counts.ends["dropped(fully_masked)"] > 5, GetParam() == Disposition::kMask);
  EXPECT_GT(counts.ends["requeued(lease_expired)"], 30);
  EXPECT_GT(counts.ends["filtered(zero_variance)"], 50);
  EXPECT_GT(counts.ends["filtered(too_hard)"], 20);
  EXPECT_GT(counts.ends["filtered(too_easy)"], 20);
  EXPECT_GT(counts.replayed, 20);
  EXPECT_GT(counts.skipped, 5);
  EXPECT_GT(counts.ends["dead(score_failed)"], 10);
  EXPECT_GT(counts.ends["dead(lease_failed)"], 20);
  EXPECT_GT(counts.ends["requeued(lease_failed)"], 20);
  EXPECT_GT(counts.ends["requeued(handed_back)"], 100);
  EXPECT_GT(counts.ends["dead(handed_back)"], 20);
  EXPECT_GT(counts.answers["PutSample FAILED_PRECONDITION"], 100);
  EXPECT_GT(counts.answers["PutSample INVALID_ARGUMENT"], 30);
  EXPECT_GT(counts.answers["CommitStep FAILED_PRECONDITION"], 10);
  std::string summary = StrCat("trained ", counts.trained, "; replayed ", counts.replayed,
                               "; skipped ", counts.skipped);
  for (const auto& [reason, groups] : counts.ends) summary += StrCat("; ", reason, " ", groups);
  for (const auto& [answer, calls] : counts.answers) summary += StrCat("; ", answer, " ", calls);
  RecordProperty("summary", summary);
}

}  // namespace
}  // namespace freshet
