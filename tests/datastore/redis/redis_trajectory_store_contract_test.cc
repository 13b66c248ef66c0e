// The whole contract of TrajectoryStore on a private redis-server.
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "datastore/redis/redis_trajectory_store.h"
#include "gtest/gtest.h"
#include "tests/contract/trajectory_store_contract.h"
#include "tests/datastore/redis/redis_server.h"

namespace freshet {
namespace {

// One server for all cases of this process; each store gets an empty one. Not durable: these cases
// kill nothing.
RedisServer& Server() {
  static std::unique_ptr<RedisServer> server = [] {
    auto started = RedisServer::Start({{"appendonly", "no"}});
    if (!started.ok()) {
      ADD_FAILURE() << started.status();
      std::abort();
    }
    return *std::move(started);
  }();
  return *server;
}

std::unique_ptr<TrajectoryStore> CreateInRedis(StoreOptions options, StoreOrigin origin,
                                               FakeClock& clock) {
  // With the rights of a worker.
  static const std::shared_ptr<RedisClient> client = Server().Client("rollout");
  EXPECT_TRUE(Server().Flush().ok());
  RedisStoreSettings settings;
  settings.clock = &clock;
  settings.ledger_segment_rows = 3;
  auto store =
      RedisTrajectoryStore::Create(client, std::move(options), std::move(origin), settings);
  EXPECT_TRUE(store.ok()) << store.status();
  return store.ok() ? std::move(store).value() : nullptr;
}

// No case where no redis-server is installed.
std::vector<StoreBackend> Backends() {
  if (!RedisServer::Available()) return {};
  return {StoreBackend{"Redis", CreateInRedis}};
}

INSTANTIATE_TEST_SUITE_P(Redis, TrajectoryStoreContract, testing::ValuesIn(Backends()),
                         StoreBackendName);
INSTANTIATE_TEST_SUITE_P(Redis, TrajectoryStoreCurationContract, testing::ValuesIn(Backends()),
                         StoreBackendName);
INSTANTIATE_TEST_SUITE_P(Redis, EvaluationStoreContract, testing::ValuesIn(Backends()),
                         StoreBackendName);

}  // namespace
}  // namespace freshet
