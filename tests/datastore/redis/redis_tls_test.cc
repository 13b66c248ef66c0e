#include "datastore/redis/redis_tls.h"

#include <filesystem>
#include <memory>
#include <string>

#include "base/file.h"
#include "datastore/redis/redis_client.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/datastore/redis/redis_server.h"
#include "tests/services/runtime/certificates.h"

namespace freshet {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// A redis-server that speaks TLS and asks for a client certificate.
class RedisTlsTest : public testing::Test {
 protected:
  void SetUp() override {
    FRESHET_SKIP_WITHOUT_REDIS();
    certificates_.MakeAuthority("ca");
    certificates_.MakeAuthority("other");
    certificates_.Make("redis", "ca", "DNS:redis.test,IP:127.0.0.1");
    certificates_.Make("member", "ca", "DNS:rollout.test");
    certificates_.Make("stranger", "other", "DNS:rollout.test");
    auto server = RedisServer::Start({{"tls-cert-file", certificates_.Path("redis.pem")},
                                      {"tls-key-file", certificates_.Path("redis.key")},
                                      {"tls-ca-cert-file", certificates_.Path("ca.pem")},
                                      {"tls-auth-clients", "yes"}});
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    options_.port = server_->tls_port();
    options_.tls = {true, certificates_.Path("ca.pem"), certificates_.Path("member.pem"),
                    certificates_.Path("member.key"), ""};
    options_.connect_timeout = absl::Seconds(10);
    options_.command_timeout = absl::Seconds(60);  // 160 MB on a busy machine
  }

  absl::Status Ping(const RedisOptions& options) {
    const auto client = RedisClient::Create(options);
    if (!client.ok()) return client.status();
    return (*client)->Command({"PING"}).status();
  }

  Certificates certificates_;
  std::unique_ptr<RedisServer> server_;
  RedisOptions options_;
};

TEST_F(RedisTlsTest, CarriesCommandsLargeAndSmall) {
  const auto client = RedisClient::Create(options_);
  ASSERT_TRUE(client.ok()) << client.status();
  const std::string large(40 << 20, 'x');
  // Both directions at once, in pieces larger than the buffers between.
  const auto replies = (*client)->Pipeline({{"SET", "k", large},
                                            {"GET", "k"},
                                            {"SET", "k2", large},
                                            {"GET", "k2"},
                                            {"INCR", "n"},
                                            {"CLIENT", "ID"}});
  ASSERT_TRUE(replies.ok()) << replies.status();
  EXPECT_TRUE((*replies)[1]->text == large);
  EXPECT_TRUE((*replies)[3]->text == large);
  EXPECT_EQ((*replies)[4]->integer, 1);
  // The connection is used again: session tickets of TLS 1.3 do not make it look busy.
  EXPECT_EQ((*client)->Command({"INCR", "n"})->integer, 2);
  EXPECT_EQ((*client)->Command({"CLIENT", "ID"})->integer, (*replies)[5]->integer);
}

TEST_F(RedisTlsTest, CarriesSubscriptions) {
  const auto client = RedisClient::Create(options_);
  ASSERT_TRUE(client.ok()) << client.status();
  auto subscription = (*client)->Subscribe({"c"});
  ASSERT_TRUE(subscription.ok()) << subscription.status();
  ASSERT_TRUE((*client)->Command({"PUBLISH", "c", "hello"}).ok());
  const auto message = (*subscription)->Next(absl::Seconds(10));
  ASSERT_TRUE(message.ok()) << message.status();
}

TEST_F(RedisTlsTest, ChecksTheServersName) {
  options_.tls.server_name = "redis.test";
  EXPECT_TRUE(Ping(options_).ok());
  options_.tls.server_name = "elsewhere.test";
  const absl::Status status = Ping(options_);
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()), HasSubstr("its certificate is refused"));
}

TEST_F(RedisTlsTest, ChecksTheServersAuthority) {
  options_.tls.ca = certificates_.Path("other.pem");
  EXPECT_THAT(std::string(Ping(options_).message()), HasSubstr("its certificate is refused"));
}

TEST_F(RedisTlsTest, AServerThatAsksForACertificateRefusesOthers) {
  options_.tls.cert = certificates_.Path("stranger.pem");
  options_.tls.key = certificates_.Path("stranger.key");
  EXPECT_EQ(Ping(options_).code(), absl::StatusCode::kUnavailable);
  options_.tls.cert = options_.tls.key = "";
  EXPECT_EQ(Ping(options_).code(), absl::StatusCode::kUnavailable);
}

TEST_F(RedisTlsTest, APlainClientIsRefused) {
  options_.tls = {};
  EXPECT_EQ(Ping(options_).code(), absl::StatusCode::kUnavailable);
}

TEST_F(RedisTlsTest, RenewedFilesAreUsedWithoutARestart) {
  const auto client = RedisClient::Create(options_);
  ASSERT_TRUE((*client)->Command({"SET", "k", "v"}).ok());
  // Both sides get certificates of a new authority; the former one is not believed any more.
  certificates_.Make("redis", "other", "IP:127.0.0.1");
  certificates_.Make("member", "other", "DNS:rollout.test");
  std::filesystem::copy_file(certificates_.Path("other.pem"), certificates_.Path("ca.pem"),
                             std::filesystem::copy_options::overwrite_existing);
  ASSERT_TRUE(server_->Client()
                  ->Command({"CONFIG", "SET", "tls-cert-file", certificates_.Path("redis.pem"),
                             "tls-key-file", certificates_.Path("redis.key"), "tls-ca-cert-file",
                             certificates_.Path("ca.pem")})
                  .ok());
  // A connection that was there goes on.
  EXPECT_EQ((*client)->Command({"GET", "k"})->text, "v");
  ASSERT_TRUE(
      server_->Client()->Command({"CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"}).ok());
  EXPECT_EQ((*client)->Command({"GET", "k"})->text, "v");
}

TEST_F(RedisTlsTest, AFileInTheMiddleOfItsRenewalIsAnOutage) {
  const std::string key = certificates_.Path("member.key");
  const std::string good = *ReadFile(key, 1 << 20);
  const auto client = RedisClient::Create(options_);
  ASSERT_TRUE(WriteFileAtomically(key, "not yet").ok());
  EXPECT_EQ((*client)->Command({"PING"}).status().code(), absl::StatusCode::kUnavailable);
  ASSERT_TRUE(WriteFileAtomically(key, good).ok());
  EXPECT_TRUE((*client)->Command({"PING"}).ok());
}

TEST_F(RedisTlsTest, FilesThatCannotBeUsedAreNamed) {
  RedisOptions bad = options_;
  bad.tls.ca = certificates_.Path("none.pem");
  EXPECT_THAT(std::string(Ping(bad).message()), HasSubstr("none.pem"));
  bad = options_;
  bad.tls.key = certificates_.Path("stranger.key");
  EXPECT_THAT(std::string(Ping(bad).message()),
              AllOf(HasSubstr("redis TLS key"), HasSubstr("stranger.key")));
  bad = options_;
  bad.tls.key = "";
  EXPECT_THAT(std::string(Ping(bad).message()), HasSubstr("the key is missing"));
  bad = options_;
  bad.tls.enabled = false;
  EXPECT_THAT(std::string(Ping(bad).message()), HasSubstr("turn it on"));
}

}  // namespace
}  // namespace freshet
