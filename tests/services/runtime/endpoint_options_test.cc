#include "services/runtime/endpoint_options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/command_line.h"

namespace freshet::runtime {
namespace {

using ::testing::HasSubstr;

// The result of CommandLine::Parse and its stderr output.
struct Parsed {
  std::optional<int> code;
  std::string error;
  EndpointOptions options;
};
Parsed Parse(std::vector<const char*> args) {
  Parsed parsed;
  CommandLine app("a role", "freshet-test");
  AddEndpointFlags(app, parsed.options);
  AddUsersFlag(app, parsed.options);
  args.insert(args.begin(), "freshet-test");
  ::testing::internal::CaptureStderr();
  parsed.code = app.Parse(static_cast<int>(args.size()), args.data());
  parsed.error = ::testing::internal::GetCapturedStderr();
  return parsed;
}

TEST(EndpointFlags, HaveDefaultsThatAreValid) {
  const Parsed parsed = Parse({});
  EXPECT_EQ(parsed.code, std::nullopt) << parsed.error;
  EXPECT_EQ(parsed.options.listen, "127.0.0.1:0");
}

TEST(EndpointFlags, SetTheOptions) {
  const Parsed parsed = Parse({"--listen",
                               "0.0.0.0:7071",
                               "--http-listen",
                               "",
                               "--advertise",
                               "node-1",
                               "--tls-cert",
                               "c",
                               "--tls-key",
                               "k",
                               "--tls-ca",
                               "r",
                               "--tls-peer-name",
                               "freshet-{role}.rl.svc",
                               "--authz-policy",
                               "p",
                               "--users",
                               "u",
                               "--reflection",
                               "--max-message-bytes",
                               "1048576",
                               "--max-concurrent-streams",
                               "9",
                               "--drain-timeout-ms",
                               "1500"});
  ASSERT_EQ(parsed.code, std::nullopt) << parsed.error;
  EXPECT_EQ(parsed.options.listen, "0.0.0.0:7071");
  EXPECT_EQ(parsed.options.http_listen, "");
  EXPECT_EQ(parsed.options.advertise, "node-1");
  EXPECT_EQ(parsed.options.tls.cert, "c");
  EXPECT_EQ(parsed.options.tls.key, "k");
  EXPECT_EQ(parsed.options.tls.ca, "r");
  EXPECT_EQ(parsed.options.tls_peer_name, "freshet-{role}.rl.svc");
  EXPECT_EQ(parsed.options.authz_policy, "p");
  EXPECT_EQ(parsed.options.users, "u");
  EXPECT_TRUE(parsed.options.reflection);
  EXPECT_TRUE(parsed.options.require_client_cert);
  EXPECT_EQ(parsed.options.max_message_bytes, 1048576);
  EXPECT_EQ(parsed.options.max_concurrent_streams, 9);
  EXPECT_EQ(parsed.options.drain_timeout, absl::Milliseconds(1500));
}

TEST(EndpointFlags, RefuseBadOnesWithOneLineAndCodeTwo) {
  const std::vector<std::pair<std::vector<const char*>, const char*>> bad = {
      {{"--listen", "0.0.0.0:7070"}, "--insecure"},
      {{"--listen", "0.0.0.0:7070", "--insecure", "--cluster-token-file", "t"},
       "--cluster-token-file"},
      {{"--listen", "example.org:7070"}, "--insecure"},
      {{"--listen", "7070"}, "not HOST:PORT"},
      {{"--http-listen", "127.0.0.1:x"}, "--http-listen"},
      {{"--tls-cert", "c"}, "--tls-key is missing"},
      {{"--tls-cert", "c", "--tls-key", "k"}, "--tls-ca is missing"},
      {{"--authz-policy", "p"}, "--authz-policy needs TLS"},
      {{"--users", "u"}, "--users needs TLS"},
      {{"--tls-peer-name", "n"}, "--tls-peer-name needs TLS"},
      {{"--tls-cert", "c", "--tls-key", "k", "--tls-ca", "r", "--users", "u"},
       "--users needs --authz-policy"},
      {{"--tls-cert", "c", "--tls-key", "k", "--tls-ca", "r", "--tls-peer-name", "{rank}.svc"},
       "--tls-peer-name {rank}.svc does not give a DNS name"},
      {{"--max-message-bytes", "1"}, "--max-message-bytes 1 is not between 65536 and"},
      {{"--max-concurrent-streams", "0"}, "--max-concurrent-streams 0"},
      {{"--drain-timeout-ms", "-1"}, "--drain-timeout-ms"},
      {{"--no-such-flag"}, "--no-such-flag"}};
  for (const auto& [args, part] : bad) {
    const Parsed parsed = Parse(args);
    EXPECT_EQ(parsed.code, 2) << part;
    EXPECT_THAT(parsed.error, HasSubstr(part));
    EXPECT_THAT(parsed.error, ::testing::StartsWith("freshet-test: "));
    EXPECT_EQ(std::count(parsed.error.begin(), parsed.error.end(), '\n'), 1) << parsed.error;
  }
}

TEST(EndpointFlags, AllowPlaintextElsewhereWhenToldSo) {
  EXPECT_EQ(Parse({"--listen", "0.0.0.0:7070", "--insecure"}).code, std::nullopt);
}

TEST(EndpointFlags, NeedNoRootsWhenClientsAreNotChecked) {
  EXPECT_EQ(Parse({"--tls-cert", "c", "--tls-key", "k", "--tls-no-client-cert"}).code,
            std::nullopt);
}

TEST(IsLoopback, KnowsLoopbackAddresses) {
  for (const char* yes :
       {"localhost:1", "127.0.0.1:0", "127.9.9.9:80", "[::1]:80", "unix:/tmp/s"}) {
    EXPECT_TRUE(IsLoopback(yes)) << yes;
  }
  for (const char* no : {"0.0.0.0:1", "[::]:1", "10.0.0.1:1", "localhost.evil.org:1", "",
                         "127.0.0.1", "127.0.0.1.evil.org:1"}) {
    EXPECT_FALSE(IsLoopback(no)) << no;
  }
}

TEST(IsLocalHost, KnowsTheHeadersOfThisMachine) {
  for (const char* yes : {"localhost", "LocalHost:80", "127.0.0.1", "127.0.0.1:1", "[::1]"}) {
    EXPECT_TRUE(IsLocalHost(yes)) << yes;
  }
  for (const char* no : {"", "unix:/tmp/s", "UNIX:x", "unix:x:80", "evil.org", "localhost.evil.org",
                         "localhost@evil.org"}) {
    EXPECT_FALSE(IsLocalHost(no)) << no;
  }
}

TEST(HostPort, IsParsedAndJoined) {
  const auto v6 = ParseHostPort("[fe80::1]:7070");
  ASSERT_TRUE(v6.has_value());
  EXPECT_EQ(v6->host, "fe80::1");
  EXPECT_EQ(JoinHostPort(v6->host, v6->port), "[fe80::1]:7070");
  EXPECT_EQ(JoinHostPort("h", 1), "h:1");
  for (const char* bad : {"", ":1", "h", "h:", "h:65536", "h:-1", "h:1x", "::1:7070", "a b:1",
                          "h:1:2", "[h]:1", "[]:1", "a,b:1"}) {
    EXPECT_FALSE(ParseHostPort(bad).has_value()) << bad;
  }
}

}  // namespace
}  // namespace freshet::runtime
