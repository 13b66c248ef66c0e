#include "datastore/redis/redis_acl.h"

#include <string>
#include <vector>

#include "absl/strings/str_join.h"
#include "base/digest.h"
#include "datastore/redis/redis_client.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/datastore/redis/redis_server.h"

namespace freshet {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

// The contract tests show that each role may do its work.
class RedisAclTest : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    FRESHET_SKIP_WITHOUT_REDIS();
    auto server = RedisServer::Start();
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }
  std::unique_ptr<RedisServer> server_;
};

const std::vector<std::vector<std::string>>& RefusedToAll() {
  static const auto* const commands = new std::vector<std::vector<std::string>>{
      {"FLUSHALL"},
      {"FLUSHDB"},
      {"SWAPDB", "0", "1"},
      {"CONFIG", "GET", "*"},
      {"CONFIG", "SET", "maxmemory", "1"},
      {"KEYS", "*"},
      {"SHUTDOWN"},
      {"DEBUG", "RELOAD"},
      {"ACL", "LIST"},
      {"CLIENT", "KILL", "TYPE", "normal"},
      {"CLIENT", "TRACKING", "ON", "BCAST"},
      {"SCRIPT", "FLUSH"},
      {"FUNCTION", "LIST"},
      {"MONITOR"},
      {"REPLICAOF", "127.0.0.1", "1"},
      {"GET", "outside"},
      {"PUBLISH", "outside", "x"},
      {"EVAL", "return redis.call('FLUSHALL')", "0"},
      {"EVAL", "return redis.call('GET', 'outside')", "0"}};
  return *commands;
}

const std::vector<std::vector<std::string>>& RefusedToWorkers() {
  static const auto* const commands = new std::vector<std::vector<std::string>>{
      {"SET", "{freshet}:leader", "x"},
      {"GET", "{freshet}:leader"},
      {"HGET", "{freshet}:jobs", "j"},
      {"HDEL", "{freshet}:jobs:meta", "j"},
      {"UNLINK", "{job}:state", "{freshet}:leader"},
      {"EVAL", "return redis.call('HSET', '{freshet}:jobs', 'j', 'x')", "0"},
      {"EVAL", "return redis.call('DEL', KEYS[1])", "1", "{freshet}:leader"},
      {"SCAN", "0"}};
  return *commands;
}

void ExpectRefused(RedisClient& client, const std::vector<std::vector<std::string>>& commands) {
  for (const std::vector<std::string>& command : commands) {
    EXPECT_EQ(client.Command(command).status().code(), absl::StatusCode::kPermissionDenied)
        << absl::StrJoin(command, " ");
  }
}

TEST_P(RedisAclTest, MayDoNothingThatHarmsOthers) {
  const auto client = server_->Client(GetParam());
  ExpectRefused(*client, RefusedToAll());
  if (GetParam() != "controller") ExpectRefused(*client, RefusedToWorkers());
}

TEST_P(RedisAclTest, ReachesAllKeysOfJobs) {
  const auto client = server_->Client(GetParam());
  // Names that share a beginning with "freshet" are jobs' too.
  for (const std::string job : {"a", "f", "fr", "freshe", "freshe-1", "freshet-1", "Freshet"}) {
    EXPECT_TRUE(client->Command({"SET", "{" + job + "}:state", "x"}).ok()) << job;
  }
}

TEST_P(RedisAclTest, AnotherRolesPasswordIsRefused) {
  RedisOptions options = server_->ClientOptions();
  options.username = GetParam();
  options.password = GetParam() == "trainer" ? "rollout" : "trainer";
  const auto client = RedisClient::Create(options);
  ASSERT_TRUE(client.ok()) << client.status();
  EXPECT_EQ((*client)->Command({"PING"}).status().code(), absl::StatusCode::kPermissionDenied);
}

INSTANTIATE_TEST_SUITE_P(Roles, RedisAclTest,
                         testing::Values("controller", "rollout", "reward", "trainer"),
                         [](const auto& tested) { return tested.param; });

TEST(RedisAclText, HoldsHashesOnly) {
  const std::string text = RedisAclText({{"default", "operator-secret"},
                                         {"controller", "c-secret"},
                                         {"reward", "w-secret"},
                                         {"rollout", "r-secret"},
                                         {"trainer", "t-secret"}});
  EXPECT_THAT(text, Not(HasSubstr("secret")));
  EXPECT_THAT(
      text, HasSubstr("user default reset on #" + Sha256Hex("operator-secret") + " ~* &* +@all\n"));
  EXPECT_THAT(text, HasSubstr("user rollout reset on #" + Sha256Hex("r-secret") + " ~{[^f]*"));
}

}  // namespace
}  // namespace freshet
