#include "services/tunnel/tunnel.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/time/clock.h"
#include "base/str_cat.h"
#include "base/unique_fd.h"
#include "services/runtime/endpoint_options.h"
#include "services/tunnel/tunnel_link.h"
#include "tests/services/runtime/certificates.h"
#include "tests/services/tunnel/descriptor_limit.h"

namespace freshet {
namespace {

using ::testing::HasSubstr;

constexpr char kServerName[] = "DNS:redis.rl.svc";

UniqueFd Connect(const std::string& address) {
  UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const timeval patience{10, 0};
  ::setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
  sockaddr_in where{};
  where.sin_family = AF_INET;
  where.sin_port = htons(static_cast<uint16_t>(runtime::ParseHostPort(address)->port));
  where.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const void* raw = &where;
  EXPECT_EQ(::connect(fd.get(), static_cast<const sockaddr*>(raw), sizeof(where)), 0);
  return fd;
}

void Send(const UniqueFd& fd, const std::string& text) {
  size_t sent = 0;
  while (sent < text.size()) {
    const ssize_t count = ::send(fd.get(), text.data() + sent, text.size() - sent, MSG_NOSIGNAL);
    if (count <= 0) return;
    sent += static_cast<size_t>(count);
  }
}

// Up to `size` bytes; fewer when the connection ends.
std::string Receive(const UniqueFd& fd, size_t size) {
  std::string text(size, '\0');
  size_t received = 0;
  while (received < size) {
    const ssize_t count = ::recv(fd.get(), text.data() + received, size - received, 0);
    if (count <= 0) break;
    received += static_cast<size_t>(count);
  }
  text.resize(received);
  return text;
}

// Sends back what it gets.
class EchoServer {
 public:
  EchoServer() : listener_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in where{};
    where.sin_family = AF_INET;
    where.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    void* raw = &where;
    socklen_t size = sizeof(where);
    EXPECT_EQ(::bind(listener_.get(), static_cast<sockaddr*>(raw), size), 0);
    EXPECT_EQ(::listen(listener_.get(), 16), 0);
    EXPECT_EQ(::getsockname(listener_.get(), static_cast<sockaddr*>(raw), &size), 0);
    address_ = StrCat("127.0.0.1:", ntohs(where.sin_port));
    thread_ = std::thread([this] { Accept(); });
  }
  ~EchoServer() {
    ::shutdown(listener_.get(), SHUT_RDWR);
    thread_.join();
    for (std::thread& one : connections_) one.join();
  }
  const std::string& address() const { return address_; }
  int accepted() const { return accepted_; }
  size_t received() const { return received_; }

 private:
  void Accept() {
    for (;;) {
      const int fd = ::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC);
      if (fd < 0) return;
      ++accepted_;
      connections_.emplace_back([this, fd] {
        const UniqueFd owned(fd);
        for (std::string text; !(text = Some(owned)).empty();) {
          received_ += text.size();
          Send(owned, text);
        }
      });
    }
  }
  static std::string Some(const UniqueFd& fd) {
    std::string text(65536, '\0');
    const ssize_t count = ::recv(fd.get(), text.data(), text.size(), 0);
    text.resize(count > 0 ? static_cast<size_t>(count) : 0);
    return text;
  }

  UniqueFd listener_;
  std::string address_;
  std::atomic<int> accepted_ = 0;
  std::atomic<size_t> received_ = 0;
  std::vector<std::thread> connections_;
  std::thread thread_;
};

class TunnelTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    ::signal(SIGPIPE, SIG_IGN);
    certificates_ = new Certificates;
    certificates_->MakeAuthority("ca");
    certificates_->MakeAuthority("other");
    certificates_->Make("redis", "ca", kServerName);
    certificates_->Make("rollout", "ca", "DNS:rollout.rl.svc");
    certificates_->Make("env", "ca", "DNS:env.rl.svc");
    certificates_->Make("stranger", "other", "DNS:rollout.rl.svc");
  }
  static void TearDownTestSuite() {
    delete certificates_;
    certificates_ = nullptr;
  }

  static TunnelTls Tls(const std::string& name, bool server) {
    TunnelTls tls;
    tls.server = server;
    if (!name.empty()) {
      tls.cert = certificates_->Path(name + ".pem");
      tls.key = certificates_->Path(name + ".key");
    }
    tls.ca = certificates_->Path("ca.pem");
    if (!server) tls.peer_name = "redis.rl.svc";
    tls.refresh = absl::Milliseconds(10);
    return tls;
  }
  static std::unique_ptr<Tunnel> Start(const TunnelTls& tls, const std::string& target) {
    TunnelOptions options;
    options.listen = "127.0.0.1:0";
    options.connect = target;
    options.tls = tls;
    auto tunnel = Tunnel::Start(options);
    EXPECT_TRUE(tunnel.ok()) << tunnel.status();
    return tunnel.ok() ? *std::move(tunnel) : nullptr;
  }
  // What comes back of "ping" through a client's tunnel.
  static std::string Ping(const Tunnel& client) {
    const UniqueFd fd = Connect(client.address());
    Send(fd, "ping");
    return Receive(fd, 4);
  }

  static Certificates* certificates_;
  EchoServer echo_;
};

Certificates* TunnelTest::certificates_ = nullptr;

TEST_F(TunnelTest, BytesArriveInBothDirections) {
  const auto server = Start(Tls("redis", true), echo_.address());
  const auto client = Start(Tls("rollout", false), server->address());
  const UniqueFd fd = Connect(client->address());
  std::string sent(8 << 20, '\0');
  for (size_t i = 0; i < sent.size(); ++i) sent[i] = static_cast<char>(i * 31 % 251);
  std::thread sender([&] { Send(fd, sent); });
  const std::string received = Receive(fd, sent.size());
  sender.join();
  EXPECT_TRUE(received == sent);
}

TEST_F(TunnelTest, ManyConnectionsAtATime) {
  const auto server = Start(Tls("redis", true), echo_.address());
  const auto client = Start(Tls("rollout", false), server->address());
  std::vector<UniqueFd> open;
  for (int i = 0; i < 40; ++i) open.push_back(Connect(client->address()));
  for (size_t i = 0; i < open.size(); ++i) Send(open[i], StrCat(1000 + i));
  for (size_t i = 0; i < open.size(); ++i) EXPECT_EQ(Receive(open[i], 4), StrCat(1000 + i));
}

TEST_F(TunnelTest, AnEndOfOneSideIsOneOfTheOther) {
  const auto server = Start(Tls("redis", true), echo_.address());
  const auto client = Start(Tls("rollout", false), server->address());
  const UniqueFd fd = Connect(client->address());
  Send(fd, "last");
  EXPECT_EQ(Receive(fd, 4), "last");
  ::shutdown(fd.get(), SHUT_WR);
  EXPECT_EQ(Receive(fd, 1), "");
}

TEST_F(TunnelTest, WhatWasSentBeforeTheEndArrives) {
  const auto server = Start(Tls("redis", true), echo_.address());
  const auto client = Start(Tls("rollout", false), server->address());
  const std::string sent(4 << 20, 'x');
  {
    const UniqueFd fd = Connect(client->address());
    std::thread sender([&] {
      Send(fd, sent);
      ::shutdown(fd.get(), SHUT_WR);
    });
    while (!Receive(fd, 1 << 16).empty()) {
    }
    sender.join();
  }
  const absl::Time deadline = absl::Now() + absl::Seconds(20);
  while (echo_.received() < sent.size() && absl::Now() < deadline) std::this_thread::yield();
  EXPECT_EQ(echo_.received(), sent.size());
}

TEST_F(TunnelTest, AServerOfAnotherNameIsRefused) {
  const auto server = Start(Tls("redis", true), echo_.address());
  TunnelTls tls = Tls("rollout", false);
  tls.peer_name = "controller.rl.svc";
  const auto client = Start(tls, server->address());
  EXPECT_EQ(Ping(*client), "");
  EXPECT_EQ(echo_.accepted(), 0);
}

TEST_F(TunnelTest, AClientWithoutACertificateIsRefused) {
  const auto server = Start(Tls("redis", true), echo_.address());
  const auto client = Start(Tls("", false), server->address());
  EXPECT_EQ(Ping(*client), "");
  EXPECT_EQ(echo_.accepted(), 0);
}

TEST_F(TunnelTest, AClientOfAnotherAuthorityIsRefused) {
  const auto server = Start(Tls("redis", true), echo_.address());
  const auto client = Start(Tls("stranger", false), server->address());
  EXPECT_EQ(Ping(*client), "");
  EXPECT_EQ(echo_.accepted(), 0);
}

TEST_F(TunnelTest, OnlyNamesOfTheListMayConnect) {
  TunnelTls tls = Tls("redis", true);
  tls.allow = {"trainer.rl.svc", "rollout*"};
  const auto server = Start(tls, echo_.address());
  EXPECT_EQ(Ping(*Start(Tls("rollout", false), server->address())), "ping");
  EXPECT_EQ(Ping(*Start(Tls("env", false), server->address())), "");
  EXPECT_EQ(echo_.accepted(), 1);
}

TEST_F(TunnelTest, PlainTextAtTheTlsPortReachesNobody) {
  const auto server = Start(Tls("redis", true), echo_.address());
  const UniqueFd fd = Connect(server->address());
  Send(fd, "*1\r\n$4\r\nPING\r\n");
  EXPECT_THAT(Receive(fd, 64), testing::Not(HasSubstr("PING")));
  EXPECT_EQ(echo_.accepted(), 0);
}

TEST_F(TunnelTest, ATargetThatIsAwayEndsTheConnection) {
  const auto client = Start(Tls("rollout", false), "127.0.0.1:1");
  EXPECT_EQ(Ping(*client), "");
}

TEST_F(TunnelTest, NewCertificatesAreTakenWithoutARestart) {
  Certificates files;
  files.MakeAuthority("ca");
  files.Make("redis", "ca", "DNS:former.rl.svc");
  TunnelTls server_tls = Tls("redis", true);
  server_tls.cert = files.Path("redis.pem");
  server_tls.key = files.Path("redis.key");
  const auto server = Start(server_tls, echo_.address());
  TunnelTls client_tls = Tls("rollout", false);
  client_tls.ca = files.Path("ca.pem");
  const auto client = Start(client_tls, server->address());
  EXPECT_EQ(Ping(*client), "");  // the server's certificate has the former name
  files.Make("redis", "ca", kServerName);
  const absl::Time deadline = absl::Now() + absl::Seconds(20);
  std::string answer;
  while (answer.empty() && absl::Now() < deadline) answer = Ping(*client);
  EXPECT_EQ(answer, "ping");
}

TEST_F(TunnelTest, BrokenFilesLeaveTheFormerInForce) {
  Certificates files;
  files.MakeAuthority("ca");
  files.Make("redis", "ca", kServerName);
  TunnelTls server_tls = Tls("redis", true);
  server_tls.cert = files.Path("redis.pem");
  server_tls.key = files.Path("redis.key");
  const auto server = Start(server_tls, echo_.address());
  TunnelTls client_tls = Tls("rollout", false);
  client_tls.ca = files.Path("ca.pem");
  const auto client = Start(client_tls, server->address());
  EXPECT_EQ(Ping(*client), "ping");
  ASSERT_TRUE(WriteFileAtomically(files.Path("redis.pem"), "no certificate\n").ok());
  for (int i = 0; i < 20; ++i) EXPECT_EQ(Ping(*client), "ping");
}

// A server's tunnel with connections that never say anything, and one that works.
class CrowdedTunnelTest : public TunnelTest {
 protected:
  static constexpr size_t kNumIdle = 60;

  void SetUp() override {
    TunnelOptions options;
    options.listen = "127.0.0.1:0";
    options.connect = echo_.address();
    options.tls = Tls("redis", true);
    options.setup_timeout = absl::Minutes(1);  // the idle ones stay
    auto server = Tunnel::Start(options);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    client_ = Start(Tls("rollout", false), server_->address());
    for (size_t i = 0; i < kNumIdle; ++i) idle_.push_back(Connect(server_->address()));
    // The last that is accepted: the idle ones are links by now.
    working_ = Connect(client_->address());
    ASSERT_EQ(Echoed(), "ping");
    low_.Free();
  }
  std::string Echoed() const {
    Send(working_, "ping");
    return Receive(working_, 4);
  }

  LowDescriptors low_;
  std::unique_ptr<Tunnel> server_;
  std::unique_ptr<Tunnel> client_;
  std::vector<UniqueFd> idle_;
  UniqueFd working_;
};

TEST_F(CrowdedTunnelTest, PollIsNotAskedAboutTwoDescriptorsOfEveryConnection) {
  // Enough for one of each idle connection, not for two: poll refuses more than the limit.
  const SoftDescriptorLimit limit(kNumIdle + kNumIdle / 2);
  const absl::Time deadline = absl::Now() + absl::Seconds(20);
  int echoed = 0;
  // With a turn at every tick only, one takes seconds.
  while (echoed < 100 && absl::Now() < deadline && Echoed() == "ping") ++echoed;
  EXPECT_EQ(echoed, 100);
}

TEST_F(CrowdedTunnelTest, WhenPollFailsBytesArriveWithoutTurning) {
  const SoftDescriptorLimit limit(kNumIdle / 2);
  const absl::Time start = absl::Now();
  const absl::Duration before = ProcessCpuTime();
  EXPECT_EQ(Echoed(), "ping");
  EXPECT_EQ(Echoed(), "ping");
  EXPECT_LT(ProcessCpuTime() - before, absl::Milliseconds(50) + (absl::Now() - start) / 4);
}

TEST_F(TunnelTest, HasNoMoreConnectionsThanItsDescriptorsAreEnoughFor) {
  const auto server = Start(Tls("redis", true), echo_.address());
  std::unique_ptr<Tunnel> client;
  {
    const SoftDescriptorLimit limit(64);  // at the tunnel's start: (64 - 16) / 2 connections
    client = Start(Tls("rollout", false), server->address());
  }
  std::vector<UniqueFd> open;
  for (int i = 0; i < 24; ++i) {
    open.push_back(Connect(client->address()));
    Send(open.back(), "ping");
    ASSERT_EQ(Receive(open.back(), 4), "ping") << i;
  }
  EXPECT_EQ(Ping(*client), "");
}

TEST_F(TunnelTest, ACheckSaysWhetherSomethingListens) {
  EXPECT_TRUE(CheckListening(echo_.address()).ok());
  EXPECT_FALSE(CheckListening("127.0.0.1:1").ok());
  EXPECT_TRUE(absl::IsInvalidArgument(CheckListening("here")));
}

int Option(const UniqueFd& fd, int name) {
  int value = -1;
  socklen_t size = sizeof(value);
  EXPECT_EQ(::getsockopt(fd.get(), IPPROTO_TCP, name, &value, &size), 0);
  return value;
}

void ExpectADeadPeerIsNoticed(const UniqueFd& fd) {
  EXPECT_EQ(Option(fd, TCP_KEEPIDLE) + Option(fd, TCP_KEEPCNT) * Option(fd, TCP_KEEPINTVL), 90);
  EXPECT_EQ(Option(fd, TCP_USER_TIMEOUT), 90'000);
}

TEST_F(TunnelTest, ADeadPeerOfEitherSideIsNoticed) {
  sockaddr_in where{};
  where.sin_family = AF_INET;
  where.sin_port = htons(static_cast<uint16_t>(runtime::ParseHostPort(echo_.address())->port));
  where.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  SocketAddress target;
  std::memcpy(&target.storage, &where, sizeof(where));
  target.size = sizeof(where);
  const auto connected = BeginConnect(target);
  ASSERT_TRUE(connected.ok()) << connected.status();
  ExpectADeadPeerIsNoticed(*connected);

  const auto context = TlsContext::Create(Tls("redis", true));
  ASSERT_TRUE(context.ok()) << context.status();
  const UniqueFd accepted(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const TunnelLink link(**context, /*server=*/true, UniqueFd(::dup(accepted.get())), &target,
                        absl::Now(), absl::InfiniteFuture());
  ExpectADeadPeerIsNoticed(accepted);
}

TEST(BoundLinksTest, TwoDescriptorsEachBesideThoseForAllElse) {
  struct Case {
    size_t wanted;
    uint64_t max_descriptors;
    size_t links;
  };
  for (const Case& c : {Case{4096, 0, 1}, Case{4096, 16, 1}, Case{4096, 18, 1}, Case{4096, 20, 2},
                        Case{4096, 1024, 504},   // (1024 - 16) / 2
                        Case{4096, 8207, 4095},  // 8191 / 2
                        Case{4096, 8208, 4096}, Case{4096, 1 << 20, 4096},
                        Case{4096, RLIM_INFINITY, 4096}, Case{7, 1024, 7}}) {
    const LinkBound bound = BoundLinks(c.wanted, c.max_descriptors);
    EXPECT_EQ(bound.links, c.links) << c.max_descriptors;
    EXPECT_EQ(bound.reason.empty(), c.links == c.wanted) << bound.reason;
  }
  EXPECT_EQ(BoundLinks(4096, 1024).reason,
            "1024 descriptors are enough for 504 connections, not for 4096");
}

TunnelOptions Bad(bool server, const std::string& listen, const std::string& connect) {
  TunnelOptions options;
  options.listen = listen;
  options.connect = connect;
  options.tls.server = server;
  options.tls.cert = options.tls.key = "x";
  options.tls.ca = "ca";
  if (!server) options.tls.peer_name = "redis";
  return options;
}

TEST(TunnelOptionsTest, BadOptionsNameTheFlag) {
  EXPECT_TRUE(ValidateTunnel(Bad(false, "127.0.0.1:1", "redis:6379")).ok());
  EXPECT_TRUE(ValidateTunnel(Bad(true, "0.0.0.0:6379", "127.0.0.1:6390")).ok());
  const auto message = [](const TunnelOptions& options) {
    return Message(ValidateTunnel(options));
  };
  EXPECT_THAT(message(Bad(false, "0.0.0.0:1", "redis:6379")),
              HasSubstr("--plain-listen 0.0.0.0:1 is not a loopback address"));
  EXPECT_THAT(message(Bad(true, "0.0.0.0:6379", "10.0.0.1:6390")),
              HasSubstr("--plain-connect 10.0.0.1:6390 is not a loopback address"));
  EXPECT_THAT(message(Bad(false, "127.0.0.1:1", "redis")), HasSubstr("--tls-connect redis"));
  TunnelOptions options = Bad(false, "127.0.0.1:1", "redis:6379");
  options.tls.peer_name.clear();
  EXPECT_THAT(message(options), HasSubstr("--tls-peer-name is missing"));
  options = Bad(false, "127.0.0.1:1", "redis:6379");
  options.tls.key.clear();
  EXPECT_THAT(message(options), HasSubstr("--tls-key is missing"));
  options = Bad(false, "127.0.0.1:1", "redis:6379");
  options.tls.public_roots = true;
  EXPECT_THAT(message(options), HasSubstr("one of them"));
  options = Bad(true, "0.0.0.0:6379", "127.0.0.1:6390");
  options.tls.cert = options.tls.key = "";
  EXPECT_THAT(message(options), HasSubstr("--tls-cert is missing"));
}

}  // namespace
}  // namespace freshet
