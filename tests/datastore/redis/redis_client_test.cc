#include "datastore/redis/redis_client.h"

#include <atomic>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/datastore/redis/redis_server.h"

namespace freshet {
namespace {

constexpr RedisScript kSum = {
    "sum", "return redis.call('INCRBY', KEYS[1], tonumber(ARGV[1]) + tonumber(ARGV[2]))"};
constexpr RedisScript kBroken = {"broken", "return redis.call('NOSUCH')"};

class RedisClientTest : public testing::Test {
 protected:
  void SetUp() override { FRESHET_SKIP_WITHOUT_REDIS(); }

  // Starts a server with `config` and gives a client of it.
  std::shared_ptr<RedisClient> StartServer(std::map<std::string, std::string> config = {}) {
    auto server = RedisServer::Start(std::move(config));
    EXPECT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    return server_->Client();
  }

  std::unique_ptr<RedisServer> server_;
};

TEST_F(RedisClientTest, CommandGivesEachKindOfReply) {
  const auto client = StartServer();
  const std::string bytes("\0\r\n$5\xff", 6);
  EXPECT_EQ(client->Command({"SET", "k", bytes})->kind, RedisReply::Kind::kStatus);
  EXPECT_EQ(client->Command({"GET", "k"})->text, bytes);
  EXPECT_TRUE(client->Command({"GET", "absent"})->IsNil());
  EXPECT_EQ(client->Command({"INCR", "n"})->integer, 1);
  EXPECT_EQ(client->Command({"MGET", "k", "absent"})->items.size(), 2u);
}

TEST_F(RedisClientTest, PipelineKeepsOrderAndErrorsOfSingleCommands) {
  const auto client = StartServer();
  const auto replies =
      client->Pipeline({{"SET", "k", "v"}, {"INCR", "k"}, {"GET", "k"}, {"LPUSH", "k", "x"}});
  ASSERT_TRUE(replies.ok()) << replies.status();
  ASSERT_EQ(replies->size(), 4u);
  EXPECT_TRUE((*replies)[0].ok());
  EXPECT_EQ((*replies)[1].status().code(), absl::StatusCode::kInternal);
  EXPECT_EQ((*replies)[2]->text, "v");
  EXPECT_EQ((*replies)[3].status().code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(RedisClientTest, EmptyPipelineIsNoCall) {
  const auto client = StartServer();
  EXPECT_TRUE(client->Pipeline({})->empty());
}

TEST_F(RedisClientTest, EmptyCommandIsRefused) {
  const auto client = StartServer();
  EXPECT_EQ(client->Command({}).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(client->Pipeline({{}}).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(RedisClientTest, LongPipelineOfLargeRepliesDoesNotBlockBothEnds) {
  const auto client = StartServer();
  const std::string value(1 << 20, 'v');
  ASSERT_TRUE(client->Command({"SET", "k", value}).ok());
  std::vector<std::vector<std::string>> commands;
  for (int i = 0; i < 32; ++i) {
    commands.push_back({"GET", "k"});
    commands.push_back({"SET", StrCat("k", i), value});
  }
  const auto replies = client->Pipeline(commands);
  ASSERT_TRUE(replies.ok()) << replies.status();
  for (size_t i = 0; i < replies->size(); i += 2) EXPECT_EQ((*replies)[i]->text, value);
}

TEST_F(RedisClientTest, ScriptRunsBeforeAndAfterTheServerHasLostIt) {
  const auto client = StartServer();
  EXPECT_EQ(client->Run(kSum, {"n"}, {"2", "3"})->integer, 5);
  EXPECT_EQ(client->Run(kSum, {"n"}, {"2", "3"})->integer, 10);
  ASSERT_TRUE(client->Command({"SCRIPT", "FLUSH"}).ok());
  EXPECT_EQ(client->Run(kSum, {"n"}, {"2", "3"})->integer, 15);
}

TEST_F(RedisClientTest, ScriptInAPipelineRunsInItsPlace) {
  const auto client = StartServer();
  const auto replies = client->Pipeline({{"SET", "n", "100"},
                                         client->ScriptCommand(kSum, {"n"}, {"1", "1"}),
                                         {"GET", "n"},
                                         client->ScriptCommand(kSum, {"n"}, {"1", "1"})});
  ASSERT_TRUE(replies.ok()) << replies.status();
  EXPECT_EQ((*replies)[1]->integer, 102);
  EXPECT_EQ((*replies)[2]->text, "102");
  EXPECT_EQ((*replies)[3]->integer, 104);
}

TEST_F(RedisClientTest, ScriptInAPipelineThatTheServerHasLostRunsOnce) {
  const auto client = StartServer();
  ASSERT_TRUE(client->Run(kSum, {"n"}, {"1", "0"}).ok());
  ASSERT_TRUE(client->Command({"SCRIPT", "FLUSH"}).ok());
  const auto replies =
      client->Pipeline({client->ScriptCommand(kSum, {"n"}, {"1", "0"}), {"SET", "other", "x"}});
  ASSERT_TRUE(replies.ok()) << replies.status();
  EXPECT_EQ((*replies)[0]->integer, 2);
  EXPECT_EQ(client->Command({"GET", "n"})->text, "2");
}

TEST_F(RedisClientTest, ScriptErrorNamesTheScript) {
  const auto client = StartServer();
  const absl::Status status = client->Run(kBroken, {}, {}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(Message(status), testing::HasSubstr("script broken"));
}

TEST_F(RedisClientTest, ThreadsGetTheirOwnRepliesThroughFewConnections) {
  StartServer();
  RedisOptions options = server_->ClientOptions();
  options.max_connections = 3;
  const auto client = *RedisClient::Create(options);
  std::atomic<int> wrong = 0;
  std::vector<std::jthread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 100; ++i) {
        const std::string text = StrCat(t, "/", i);
        const auto reply = client->Command({"ECHO", text});
        if (!reply.ok() || reply->text != text) ++wrong;
      }
    });
  }
  threads.clear();
  EXPECT_EQ(wrong, 0);
}

TEST_F(RedisClientTest, BlockingCommandLeavesTheCommandsTheirConnection) {
  StartServer();
  RedisOptions options = server_->ClientOptions();
  options.max_connections = 1;
  const auto client = *RedisClient::Create(options);
  absl::StatusOr<RedisReply> popped;
  {
    const std::jthread waiter([&] {
      popped = client->BlockingCommand({"BLPOP", "list", "10"}, absl::Seconds(10));
    });
    EXPECT_TRUE(client->Command({"LPUSH", "list", "x"}).ok());
  }
  ASSERT_TRUE(popped.ok()) << popped.status();
  EXPECT_EQ(popped->items[1].text, "x");
}

TEST_F(RedisClientTest, ReplyOverTheLimitIsDataLossAndTheNextCallWorks) {
  StartServer();
  RedisOptions options = server_->ClientOptions();
  options.max_reply_bytes = 1 << 20;
  const auto client = *RedisClient::Create(options);
  ASSERT_TRUE(client->Command({"SET", "big", std::string(2 << 20, 'x')}).ok());
  EXPECT_EQ(client->Command({"GET", "big"}).status().code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(client->Command({"ECHO", "next"})->text, "next");
}

TEST_F(RedisClientTest, PasswordIsGivenAndItsErrorsArePermissionDenied) {
  const auto client = StartServer({{"requirepass", "secret"}});
  EXPECT_TRUE(client->Command({"SET", "k", "v"}).ok());
  RedisOptions options = server_->ClientOptions();
  options.password = "";
  const absl::Status none = (*RedisClient::Create(options))->Command({"GET", "k"}).status();
  EXPECT_EQ(none.code(), absl::StatusCode::kPermissionDenied);
  options.password = "guess-7f2a";
  const absl::Status wrong = (*RedisClient::Create(options))->Command({"GET", "k"}).status();
  EXPECT_EQ(wrong.code(), absl::StatusCode::kPermissionDenied);
  EXPECT_THAT(Message(wrong), testing::Not(testing::HasSubstr("guess-7f2a")));
}

TEST_F(RedisClientTest, PasswordForAServerWithoutOneIsPermissionDenied) {
  StartServer();
  RedisOptions options = server_->ClientOptions();
  options.password = "secret";
  const absl::Status status = (*RedisClient::Create(options))->Command({"GET", "k"}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kPermissionDenied);
  EXPECT_THAT(Message(status), testing::HasSubstr("the server has none"));
}

TEST_F(RedisClientTest, FullServerIsResourceExhaustedAndStillReads) {
  const auto client = StartServer();
  ASSERT_TRUE(client->Command({"SET", "k", "v"}).ok());
  ASSERT_TRUE(client->Command({"CONFIG", "SET", "maxmemory", "1mb"}).ok());
  const std::string value(1 << 20, 'x');
  ASSERT_FALSE(client->Command({"SET", "big", value}).ok());
  EXPECT_EQ(client->Command({"SET", "big", value}).status().code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(client->Run(kSum, {"n"}, {"1", "1"}).status().code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(client->Command({"GET", "k"})->text, "v");
}

TEST_F(RedisClientTest, ReplicaIsUnavailableForWrites) {
  const auto client = StartServer();
  ASSERT_TRUE(client->Command({"REPLICAOF", "127.0.0.1", "1"}).ok());
  const absl::Status status = client->Command({"SET", "k", "v"}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(Message(status), testing::HasSubstr("READONLY"));
  ASSERT_TRUE(client->Command({"REPLICAOF", "NO", "ONE"}).ok());
  EXPECT_TRUE(client->Command({"SET", "k", "v"}).ok());
}

TEST_F(RedisClientTest, LoadingServerIsUnavailableUntilItHasLoaded) {
  const auto client = StartServer({{"appendonly", "no"},
                                   {"key-load-delay", "2000"},
                                   {"loading-process-events-interval-bytes", "1024"}});
  std::vector<std::vector<std::string>> commands;
  for (int i = 0; i < 500; ++i) commands.push_back({"SET", StrCat("k", i), std::string(100, 'x')});
  commands.push_back({"SAVE"});
  ASSERT_TRUE(client->Pipeline(commands).ok());
  ASSERT_TRUE(server_->Launch().ok());
  absl::StatusOr<RedisReply> reply;
  bool loading = false;
  for (int tries = 0; tries < 2000; ++tries) {  // each waits out the client's backoff
    reply = client->Command({"DBSIZE"});
    if (reply.ok()) break;
    ASSERT_EQ(reply.status().code(), absl::StatusCode::kUnavailable) << reply.status();
    loading = loading || Message(reply.status()).find("LOADING") != std::string::npos;
  }
  EXPECT_TRUE(loading);
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_EQ(reply->integer, 500);
}

TEST_F(RedisClientTest, RestartedServerServesWhatItAcknowledged) {
  const auto client = StartServer();
  ASSERT_TRUE(client->Command({"SET", "k", "v"}).ok());
  server_->Kill();
  EXPECT_EQ(client->Command({"GET", "k"}).status().code(), absl::StatusCode::kUnavailable);
  ASSERT_TRUE(server_->Restart().ok());
  const auto reply = client->Command({"GET", "k"});
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_EQ(reply->text, "v");
}

TEST_F(RedisClientTest, RestartBetweenCallsIsNotNoticed) {
  const auto client = StartServer();
  ASSERT_EQ(client->Run(kSum, {"n"}, {"1", "1"})->integer, 2);
  ASSERT_TRUE(server_->Restart().ok());
  const auto reply = client->Run(kSum, {"n"}, {"1", "1"});
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_EQ(reply->integer, 4);
}

TEST_F(RedisClientTest, HungServerIsUnavailableAndItsLateReplyReachesNobody) {
  StartServer();
  RedisOptions options = server_->ClientOptions();
  options.command_timeout = absl::Milliseconds(500);
  const auto client = *RedisClient::Create(options);
  ASSERT_TRUE(client->Command({"ECHO", "before"}).ok());
  server_->Stop();
  EXPECT_EQ(client->Command({"ECHO", "late"}).status().code(), absl::StatusCode::kUnavailable);
  server_->Continue();
  absl::StatusOr<RedisReply> reply;
  for (int tries = 0; tries < 100 && !reply.ok(); ++tries)
    reply = client->Command({"ECHO", "next"});
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_EQ(reply->text, "next");
}

TEST_F(RedisClientTest, DeleteJobKeysRemovesThatJobsKeysOnly) {
  const auto client = StartServer();
  std::vector<std::vector<std::string>> commands;
  for (int i = 0; i < 2500; ++i) commands.push_back({"SET", StrCat("{a}:b:", i), "x"});
  for (const char* other : {"{ab}:k", "{b}:k", "{a}", "a:k", "{freshet}:jobs"}) {
    commands.push_back({"SET", other, "x"});
  }
  ASSERT_TRUE(client->Pipeline(commands).ok());
  const auto removed = DeleteJobKeys(*client, {"a"});
  ASSERT_TRUE(removed.ok()) << removed.status();
  EXPECT_EQ(*removed, 2500);
  EXPECT_EQ(client->Command({"DBSIZE"})->integer, 5);
}

TEST_F(RedisClientTest, DeleteJobKeysRefusesAPatternAndTheClustersOwnKeys) {
  const auto client = StartServer();
  for (const char* job : {"", "*", "a*", "a}:*{", "[ab]", "a b", "freshet"}) {
    EXPECT_EQ(DeleteJobKeys(*client, {job}).status().code(), absl::StatusCode::kInvalidArgument)
        << job;
  }
}

}  // namespace
}  // namespace freshet
