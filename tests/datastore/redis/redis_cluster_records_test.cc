#include <memory>

#include "base/clock.h"
#include "base/str_cat.h"
#include "datastore/redis/redis_event_log.h"
#include "datastore/redis/redis_job_records.h"
#include "datastore/redis/redis_leader_lease.h"
#include "tests/contract/event_log_contract.h"
#include "tests/contract/job_records_contract.h"
#include "tests/contract/leader_lease_contract.h"
#include "tests/datastore/redis/redis_server.h"

namespace freshet {
namespace {

// One server for all tests of this process, emptied for each; null where there is none.
RedisServer* RecordsServer() {
  static const std::unique_ptr<RedisServer> server = [] {
    if (!RedisServer::Available()) return std::unique_ptr<RedisServer>();
    auto started = RedisServer::Start();
    EXPECT_TRUE(started.ok()) << started.status();
    return *std::move(started);
  }();
  if (server != nullptr) {
    EXPECT_TRUE(server->Flush().ok());
  }
  return server.get();
}

INSTANTIATE_TEST_SUITE_P(Redis, JobRecordsContract,
                         testing::Values(JobRecordsBackend{
                             "redis",
                             []() -> std::shared_ptr<JobRecordStore> {
                               RedisServer* server = RecordsServer();
                               if (server == nullptr) return nullptr;
                               return std::make_shared<RedisJobRecords>(
                                   server->Client("controller"));
                             }}),
                         [](const auto& tested) { return tested.param.name; });

INSTANTIATE_TEST_SUITE_P(Redis, LeaderLeaseContract,
                         testing::Values(LeaderLeaseBackend{
                             "redis",
                             [](const Clock& clock) -> std::shared_ptr<LeaderLease> {
                               RedisServer* server = RecordsServer();
                               if (server == nullptr) return nullptr;
                               return std::make_shared<RedisLeaderLease>(
                                   server->Client("controller"), &clock);
                             }}),
                         [](const auto& tested) { return tested.param.name; });

INSTANTIATE_TEST_SUITE_P(Redis, EventLogContract,
                         testing::Values(EventLogBackend{
                             "redis",
                             [](const EventLogOptions& options) -> std::shared_ptr<EventLog> {
                               RedisServer* server = RecordsServer();
                               if (server == nullptr) return nullptr;
                               return *RedisEventLog::Create(server->Client("trainer"), options);
                             }}),
                         [](const auto& tested) { return tested.param.name; });

TEST(RedisLeaderLease, OnTheServersOwnClockAnEndedLeaseGoesToTheNext) {
  FRESHET_SKIP_WITHOUT_REDIS();
  RedisLeaderLease lease(RecordsServer()->Client());
  const int64_t token = lease.TryAcquire("a", "a:1", absl::Milliseconds(20))->token;
  const absl::Time guard = SystemClock::Get().Now() + absl::Seconds(10);
  LeaseState state;
  while (!state.held && SystemClock::Get().Now() < guard) {
    const auto tried = lease.TryAcquire("b", "b:1", absl::Seconds(2));
    ASSERT_TRUE(tried.ok()) << tried.status();
    state = *tried;
    if (!state.held) {
      EXPECT_LE(state.remaining, absl::Milliseconds(20));
    }
  }
  EXPECT_TRUE(state.held);
  EXPECT_GT(state.token, token);
}

TEST(RedisJobRecords, SurviveAKilledServer) {
  FRESHET_SKIP_WITHOUT_REDIS();
  RedisServer* server = RecordsServer();
  RedisJobRecords records(server->Client());
  const auto revision = records.Create("j", "x", 3);
  ASSERT_TRUE(revision.ok()) << revision.status();
  server->Kill();
  EXPECT_EQ(records.Get("j").status().code(), absl::StatusCode::kUnavailable);
  ASSERT_TRUE(server->Restart().ok());
  const auto record = records.Get("j");
  ASSERT_TRUE(record.ok()) << record.status();
  EXPECT_EQ(record->revision, *revision);
  EXPECT_EQ(records.Delete("j", 2).code(), absl::StatusCode::kFailedPrecondition);
}

TEST(RedisJobRecords, RecordOfForeignBytesIsDataLoss) {
  FRESHET_SKIP_WITHOUT_REDIS();
  const auto client = RecordsServer()->Client();
  RedisJobRecords records(client);
  for (const char* row : {"", "x", "12", "-1 x", "99999999999999999999 x"}) {
    ASSERT_TRUE(client->Command({"HSET", "{freshet}:jobs", "j", row}).ok());
    EXPECT_EQ(records.Get("j").status().code(), absl::StatusCode::kDataLoss) << row;
  }
}

TEST(RedisEventLog, WaitingReaderIsUnavailableWhenTheServerDies) {
  FRESHET_SKIP_WITHOUT_REDIS();
  RedisServer* server = RecordsServer();
  const auto log = RedisEventLog::Create(server->Client());
  ASSERT_TRUE((*log)->Append("{j}:events", "", "x").ok());
  absl::StatusCode code = absl::StatusCode::kOk;
  {
    const std::jthread reader(
        [&] { code = (*log)->Read("{j}:events", 1, 10, absl::Seconds(30)).status().code(); });
    server->Kill();
  }
  EXPECT_EQ(code, absl::StatusCode::kUnavailable);
  ASSERT_TRUE(server->Restart().ok());
}

TEST(RedisClusterRecords, TheControllerGoesOnAtTheMemoryLimit) {
  FRESHET_SKIP_WITHOUT_REDIS();
  const auto client = RecordsServer()->Client();
  RedisLeaderLease lease(client);
  RedisJobRecords records(client);
  const auto log = RedisEventLog::Create(client);
  const auto revision = records.Create("j", "x", 3);
  ASSERT_TRUE(revision.ok()) << revision.status();
  ASSERT_TRUE(client->Command({"CONFIG", "SET", "maxmemory", "100kb"}).ok());
  const auto full = absl::StatusCode::kResourceExhausted;
  ASSERT_EQ(client->Command({"SET", "x", "1"}).status().code(), full);
  // Who leads, what the jobs are and why they stall can still be written.
  EXPECT_TRUE(lease.TryAcquire("a", "a:1", absl::Seconds(2)).value_or(LeaseState()).held);
  EXPECT_TRUE(records.Update("j", *revision, "y", 3).ok());
  EXPECT_TRUE((*log)->Append("{j}:events", "k", "stalled").ok());
  EXPECT_TRUE(lease.Release("a", 1).ok());
  // What is large has to wait.
  const auto large = (*log)->Append("{j}:samples", "", std::string(100'000, 'x'));
  EXPECT_EQ(large.status().code(), full);
  ASSERT_TRUE(client->Command({"CONFIG", "SET", "maxmemory", "0"}).ok());
}

// A stream that an older program began has no count of its bytes.
TEST(RedisEventLog, TheStreamOfAnOlderProgramIsBoundedByWhatComesAfterIt) {
  FRESHET_SKIP_WITHOUT_REDIS();
  const auto client = RecordsServer()->Client();
  EventLogOptions options;
  options.max_bytes = 100;
  const auto log = RedisEventLog::Create(client, options);
  for (int i = 1; i <= 5; ++i) {
    const std::string id = StrCat(i, "-0");
    ASSERT_TRUE(client->Command({"XADD", "{j}:events", id, "k", "", "v", "0123456789"}).ok());
  }
  ASSERT_TRUE(client->Command({"HSET", "{j}:events:keys", "n", "5"}).ok());
  for (int i = 0; i < 3; ++i) ASSERT_TRUE((*log)->Append("{j}:events", "", "0123456789").ok());
  EXPECT_EQ((*log)->Read("{j}:events", 0, 100, absl::ZeroDuration())->events.size(), 8u);
  ASSERT_TRUE((*log)->Append("{j}:events", "", std::string(80, 'x')).ok());
  const auto page = (*log)->Read("{j}:events", 0, 100, absl::ZeroDuration());
  ASSERT_TRUE(page.ok()) << page.status();
  EXPECT_EQ(page->events.front().cursor, 7);  // 6 went with those before the count
}

TEST(RedisEventLog, JobsStreamsGoWithTheJobsKeys) {
  FRESHET_SKIP_WITHOUT_REDIS();
  const auto client = RecordsServer()->Client();
  const auto log = RedisEventLog::Create(client);
  ASSERT_TRUE((*log)->Append("{j}:events", "k", "x").ok());
  EXPECT_EQ(*DeleteJobKeys(*client, {"j"}), 2);
  EXPECT_EQ(*(*log)->Append("{j}:events", "k", "x"), 1);
}

}  // namespace
}  // namespace freshet
