// What a network and a server that misbehave do to a client.
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/str_cat.h"
#include "datastore/redis/redis_client.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/datastore/redis/redis_server.h"
#include "tests/fault_proxy/fault_proxy.h"
#include "tests/fault_proxy/scripted_server.h"

namespace freshet {
namespace {

std::shared_ptr<RedisClient> ClientOf(RedisOptions options) {
  auto client = RedisClient::Create(std::move(options));
  EXPECT_TRUE(client.ok()) << client.status();
  return *std::move(client);
}

class RedisClientFaultTest : public testing::Test {
 protected:
  void SetUp() override {
    FRESHET_SKIP_WITHOUT_REDIS();
    auto server = RedisServer::Start();
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    auto proxy = FaultProxy::Start(server_->port());
    ASSERT_TRUE(proxy.ok()) << proxy.status();
    proxy_ = *std::move(proxy);
    options_.port = proxy_->port();
  }

  RedisOptions options_;
  std::unique_ptr<RedisServer> server_;
  std::unique_ptr<FaultProxy> proxy_;
};

TEST_F(RedisClientFaultTest, ReplyCutAtAnyByteIsUnavailableAndNeverReachesTheNextCall) {
  const auto client = ClientOf(options_);
  ASSERT_TRUE(client->Command({"SET", "k", "hello world"}).ok());
  Toxics toxics;
  for (int64_t bytes = 0; bytes < 18; ++bytes) {  // "$11\r\nhello world\r\n" has 18
    toxics.limit_bytes = bytes;
    proxy_->Set(FaultDirection::kToClient, toxics);
    EXPECT_EQ(client->Command({"GET", "k"}).status().code(), absl::StatusCode::kUnavailable)
        << bytes;
    proxy_->Heal();
    const auto next = client->Command({"ECHO", StrCat("after ", bytes)});
    ASSERT_TRUE(next.ok()) << bytes << ": " << next.status();
    EXPECT_EQ(next->text, StrCat("after ", bytes));
  }
}

TEST_F(RedisClientFaultTest, PipelineCutBetweenRepliesIsUnavailableAsAWhole) {
  const auto client = ClientOf(options_);
  Toxics toxics;
  toxics.limit_bytes = 10;  // two of "+PONG\r\n" have 14
  proxy_->Set(FaultDirection::kToClient, toxics);
  EXPECT_EQ(client->Pipeline({{"PING"}, {"PING"}}).status().code(), absl::StatusCode::kUnavailable);
  proxy_->Heal();
  EXPECT_EQ(client->Command({"ECHO", "x"})->text, "x");
}

TEST_F(RedisClientFaultTest, RequestCutInTheMiddleIsUnavailableAndHasNoEffect) {
  const auto client = ClientOf(options_);
  Toxics toxics;
  toxics.limit_bytes = 20;
  proxy_->Set(FaultDirection::kToServer, toxics);
  EXPECT_EQ(client->Command({"SET", "k", "some value"}).status().code(),
            absl::StatusCode::kUnavailable);
  proxy_->Heal();
  EXPECT_TRUE(client->Command({"GET", "k"})->IsNil());
}

TEST_F(RedisClientFaultTest, ResetIsUnavailableForARunningCall) {
  const auto client = ClientOf(options_);
  ASSERT_TRUE(client->Command({"PING"}).ok());
  Toxics toxics;
  toxics.limit_bytes = 3;
  toxics.reset = true;
  proxy_->Set(FaultDirection::kToClient, toxics);
  EXPECT_EQ(client->Command({"PING"}).status().code(), absl::StatusCode::kUnavailable);
}

TEST_F(RedisClientFaultTest, IdleConnectionThatWasCutIsReplacedUnnoticed) {
  const auto client = ClientOf(options_);
  ASSERT_TRUE(client->Command({"PING"}).ok());
  proxy_->ResetPeers();
  const auto reply = client->Command({"ECHO", "x"});
  ASSERT_TRUE(reply.ok()) << reply.status();
}

TEST_F(RedisClientFaultTest, SwallowedReplyIsUnavailableAfterTheTimeout) {
  options_.command_timeout = absl::Seconds(1);
  const auto client = ClientOf(options_);
  ASSERT_TRUE(client->Command({"PING"}).ok());
  Toxics toxics;
  toxics.swallow = true;
  proxy_->Set(FaultDirection::kToClient, toxics);
  const absl::Status status = client->Command({"SET", "k", "v"}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(Message(status), testing::HasSubstr("no answer in time"));
  // The effect of a call that timed out is unknown; here it happened.
  const auto other = server_->Client();
  const absl::Time guard = SystemClock::Get().Now() + absl::Seconds(10);
  std::string found;
  while (found != "v" && SystemClock::Get().Now() < guard) {
    found = other->Command({"GET", "k"})->text;
  }
  EXPECT_EQ(found, "v");
}

TEST_F(RedisClientFaultTest, SlowReplyInSlicesArrivesWhole) {
  const auto client = ClientOf(options_);
  const std::string value(300, 'v');
  ASSERT_TRUE(client->Command({"SET", "k", value}).ok());
  Toxics toxics;
  toxics.slice_bytes = 7;
  toxics.bytes_per_second = 10'000;
  toxics.latency = absl::Milliseconds(5);
  proxy_->Set(FaultDirection::kToClient, toxics);
  const auto reply = client->Command({"GET", "k"});
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_EQ(reply->text, value);
}

TEST_F(RedisClientFaultTest, RefusedConnectionIsUnavailableUntilTheServerIsBack) {
  const auto client = ClientOf(options_);
  proxy_->SetDown(true);
  const absl::Status status = client->Command({"PING"}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(Message(status), testing::HasSubstr("cannot connect"));
  proxy_->SetDown(false);
  EXPECT_TRUE(client->Command({"PING"}).ok());
}

TEST_F(RedisClientFaultTest, CallWithinTheBackoffSaysWhenTheNextTryComes) {
  options_.command_timeout = absl::Milliseconds(20);
  options_.reconnect_backoff_min = absl::Hours(1);
  options_.reconnect_backoff_max = absl::Hours(1);
  const auto client = ClientOf(options_);
  proxy_->SetDown(true);
  EXPECT_EQ(client->Command({"PING"}).status().code(), absl::StatusCode::kUnavailable);
  proxy_->SetDown(false);
  const absl::Status status = client->Command({"PING"}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(Message(status), testing::HasSubstr("the next try comes in"));
  EXPECT_EQ(proxy_->NumAccepted(), 0);
}

TEST_F(RedisClientFaultTest, NoMoreConnectionsThanTheBound) {
  options_.max_connections = 2;
  const auto client = ClientOf(options_);
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < 6; ++t) {
      threads.emplace_back([&] {
        for (int i = 0; i < 50; ++i) EXPECT_TRUE(client->Command({"PING"}).ok());
      });
    }
  }
  EXPECT_LE(proxy_->NumAccepted(), 2);
}

TEST_F(RedisClientFaultTest, CallWithoutAFreeConnectionIsUnavailable) {
  options_.max_connections = 1;
  options_.max_blocking_connections = 1;
  options_.command_timeout = absl::Milliseconds(30);
  const auto client = ClientOf(options_);
  absl::Status other;
  {
    const std::jthread thread([&] {
      other = client->BlockingCommand({"BLPOP", "list", "10"}, absl::Seconds(10)).status();
    });
    while (proxy_->NumAccepted() < 1) std::this_thread::yield();
    EXPECT_EQ(client->BlockingCommand({"PING"}, absl::ZeroDuration()).status().code(),
              absl::StatusCode::kUnavailable);
    EXPECT_TRUE(server_->Client()->Command({"LPUSH", "list", "x"}).ok());
  }
  EXPECT_TRUE(other.ok()) << other;
}

TEST(RedisClientBadServer, AnswerThatIsNotTheProtocolIsDataLoss) {
  const ScriptedServer server(
      [](const std::string&) { return std::string("HTTP/1.1 400 Bad Request\r\n\r\n"); });
  RedisOptions options;
  options.port = server.port();
  EXPECT_EQ(ClientOf(options)->Command({"PING"}).status().code(), absl::StatusCode::kDataLoss);
}

TEST(RedisClientBadServer, MoreRepliesThanCommandsAreDataLoss) {
  const ScriptedServer server([](const std::string&) { return std::string("+a\r\n+b\r\n"); });
  RedisOptions options;
  options.port = server.port();
  const auto client = ClientOf(options);
  EXPECT_EQ(client->Command({"PING"}).status().code(), absl::StatusCode::kDataLoss);
}

TEST(RedisClientBadServer, ConnectionThatIsClosedAtOnceIsUnavailable) {
  const ScriptedServer server([](const std::string&) { return std::nullopt; });
  RedisOptions options;
  options.port = server.port();
  EXPECT_EQ(ClientOf(options)->Command({"PING"}).status().code(), absl::StatusCode::kUnavailable);
}

TEST(RedisClientBadServer, NameThatCannotBeResolvedIsUnavailable) {
  RedisOptions options;
  options.host = "no-such-host.invalid";
  const absl::Status status = ClientOf(options)->Command({"PING"}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(Message(status), testing::HasSubstr("cannot be resolved"));
}

TEST(RedisOptionsTest, BadOptionsAreNamed) {
  const struct {
    const char* word;
    void (*change)(RedisOptions&);
  } cases[] = {
      {"host", [](RedisOptions& o) { o.host = ""; }},
      {"port 0", [](RedisOptions& o) { o.port = 0; }},
      {"port 65536", [](RedisOptions& o) { o.port = 65536; }},
      {"command_timeout", [](RedisOptions& o) { o.command_timeout = absl::ZeroDuration(); }},
      {"max_reply_bytes", [](RedisOptions& o) { o.max_reply_bytes = 1023; }},
      {"max_connections 0", [](RedisOptions& o) { o.max_connections = 0; }},
      {"backoff", [](RedisOptions& o) { o.reconnect_backoff_max = absl::ZeroDuration(); }},
  };
  for (const auto& tested : cases) {
    RedisOptions options;
    tested.change(options);
    const absl::Status status = options.Validate();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << tested.word;
    EXPECT_THAT(Message(status), testing::HasSubstr(tested.word));
  }
  EXPECT_TRUE(RedisOptions{}.Validate().ok());
}

}  // namespace
}  // namespace freshet
