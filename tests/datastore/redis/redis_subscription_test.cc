#include "datastore/redis/redis_subscription.h"

#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "datastore/redis/redis_client.h"
#include "gtest/gtest.h"
#include "tests/datastore/redis/redis_server.h"

namespace freshet {
namespace {

constexpr absl::Duration kGuard = absl::Seconds(10);

class RedisSubscriptionTest : public testing::Test {
 protected:
  void SetUp() override {
    FRESHET_SKIP_WITHOUT_REDIS();
    auto server = RedisServer::Start();
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    client_ = server_->Client();
    auto subscription = client_->Subscribe({"a", "b"});
    ASSERT_TRUE(subscription.ok()) << subscription.status();
    subscription_ = *std::move(subscription);
  }
  void Publish(const std::string& channel, const std::string& payload) {
    ASSERT_TRUE(client_->Command({"PUBLISH", channel, payload}).ok());
  }

  std::unique_ptr<RedisServer> server_;
  std::shared_ptr<RedisClient> client_;
  std::unique_ptr<RedisSubscription> subscription_;
};

TEST_F(RedisSubscriptionTest, GivesTheMessagesOfItsChannelsInOrder) {
  Publish("a", "1");
  Publish("other", "2");
  Publish("b", std::string("\0\r\n", 3));
  const auto first = subscription_->Next(kGuard);
  ASSERT_TRUE(first.ok() && first->has_value());
  EXPECT_EQ((*first)->channel, "a");
  EXPECT_EQ((*first)->payload, "1");
  const auto second = subscription_->Next(kGuard);
  ASSERT_TRUE(second.ok() && second->has_value());
  EXPECT_EQ((*second)->channel, "b");
  EXPECT_EQ((*second)->payload, std::string("\0\r\n", 3));
}

TEST_F(RedisSubscriptionTest, GivesNothingAfterTheTimeout) {
  const auto message = subscription_->Next(absl::Milliseconds(1));
  ASSERT_TRUE(message.ok()) << message.status();
  EXPECT_FALSE(message->has_value());
}

TEST_F(RedisSubscriptionTest, WakeEndsTheWaitOnce) {
  absl::StatusOr<std::optional<RedisMessage>> message;
  {
    const std::jthread waiter([&] { message = subscription_->Next(absl::Hours(1)); });
    subscription_->Wake();
  }
  ASSERT_TRUE(message.ok()) << message.status();
  EXPECT_FALSE(message->has_value());
  Publish("a", "1");
  const auto next = subscription_->Next(kGuard);
  ASSERT_TRUE(next.ok() && next->has_value());
}

TEST_F(RedisSubscriptionTest, CutConnectionIsUnavailableThenSubscribedAgain) {
  server_->Kill();
  EXPECT_EQ(subscription_->Next(kGuard).status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(subscription_->Next(kGuard).status().code(), absl::StatusCode::kUnavailable);
  ASSERT_TRUE(server_->Restart().ok());
  const auto again = subscription_->Next(kGuard);
  ASSERT_TRUE(again.ok()) << again.status();
  ASSERT_TRUE(again->has_value());
  EXPECT_EQ((*again)->channel, "");
  Publish("b", "x");
  const auto message = subscription_->Next(kGuard);
  ASSERT_TRUE(message.ok() && message->has_value());
  EXPECT_EQ((*message)->channel, "b");
}

TEST_F(RedisSubscriptionTest, OutlivesItsClient) {
  client_.reset();
  ASSERT_TRUE(server_->Client()->Command({"PUBLISH", "a", "x"}).ok());
  const auto message = subscription_->Next(kGuard);
  ASSERT_TRUE(message.ok() && message->has_value());
}

TEST_F(RedisSubscriptionTest, WithoutChannelsItIsRefused) {
  EXPECT_EQ(client_->Subscribe({}).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(RedisSubscriptionTest, WithoutAServerItIsUnavailable) {
  server_->Kill();
  EXPECT_EQ(client_->Subscribe({"a"}).status().code(), absl::StatusCode::kUnavailable);
}

}  // namespace
}  // namespace freshet
