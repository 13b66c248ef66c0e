#include "tests/fault_proxy/fault_proxy.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "base/clock.h"
#include "gtest/gtest.h"
#include "tests/fault_proxy/scripted_server.h"

namespace freshet {
namespace {

// A blocking connection; all waits are limited to 10 s.
class Peer {
 public:
  explicit Peer(int port) : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const timeval limit = {10, 0};
    ::setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    connected_ = ::connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0;
  }
  ~Peer() { ::close(fd_); }
  Peer(const Peer&) = delete;
  Peer& operator=(const Peer&) = delete;

  bool connected() const { return connected_; }
  void Send(const std::string& bytes) {
    ASSERT_EQ(::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(bytes.size()));
  }
  // Reads `size` bytes, or fewer if the connection ends first.
  std::string Receive(size_t size) {
    std::string got;
    std::array<char, 4096> buffer;
    while (got.size() < size) {
      const ssize_t count =
          ::recv(fd_, buffer.data(), std::min(buffer.size(), size - got.size()), 0);
      end_error_ = count < 0 ? errno : 0;
      if (count <= 0) break;
      got.append(buffer.data(), static_cast<size_t>(count));
    }
    return got;
  }
  int end_error() const { return end_error_; }

 private:
  const int fd_;
  bool connected_ = false;
  int end_error_ = 0;
};

class FaultProxyTest : public testing::Test {
 protected:
  FaultProxyTest() : echo_([](const std::string& bytes) { return bytes; }) {
    auto proxy = FaultProxy::Start(echo_.port());
    EXPECT_TRUE(proxy.ok());
    proxy_ = *std::move(proxy);
  }

  ScriptedServer echo_;
  std::unique_ptr<FaultProxy> proxy_;
};

TEST_F(FaultProxyTest, ForwardsBothWays) {
  Peer peer(proxy_->port());
  peer.Send("hello");
  EXPECT_EQ(peer.Receive(5), "hello");
  EXPECT_EQ(proxy_->NumAccepted(), 1);
}

TEST_F(FaultProxyTest, CarriesMoreThanItsBuffers) {
  Peer peer(proxy_->port());
  std::string sent;
  std::string got;
  for (int i = 0; i < 100; ++i) {
    const std::string part(50'000, static_cast<char>('a' + i % 26));
    peer.Send(part);
    sent += part;
    got += peer.Receive(part.size());
  }
  EXPECT_EQ(got, sent);
}

TEST_F(FaultProxyTest, LimitEndsTheConnectionAfterExactlySoManyBytes) {
  Toxics toxics;
  toxics.limit_bytes = 3;
  proxy_->Set(FaultDirection::kToClient, toxics);
  Peer peer(proxy_->port());
  peer.Send("hello");
  EXPECT_EQ(peer.Receive(5), "hel");
  EXPECT_EQ(peer.end_error(), 0);
}

TEST_F(FaultProxyTest, LimitWithResetEndsByReset) {
  Toxics toxics;
  toxics.limit_bytes = 0;
  toxics.reset = true;
  Peer peer(proxy_->port());
  peer.Send("x");
  ASSERT_EQ(peer.Receive(1), "x");
  proxy_->Set(FaultDirection::kToClient, toxics);
  EXPECT_EQ(peer.Receive(1), "");
  EXPECT_EQ(peer.end_error(), ECONNRESET);
}

TEST_F(FaultProxyTest, ResetPeersEndsConnectionsByReset) {
  Peer peer(proxy_->port());
  peer.Send("x");
  ASSERT_EQ(peer.Receive(1), "x");
  proxy_->ResetPeers();
  EXPECT_EQ(peer.Receive(1), "");
  EXPECT_EQ(peer.end_error(), ECONNRESET);
  EXPECT_EQ(proxy_->NumCut(), 1);
}

TEST_F(FaultProxyTest, DownRefusesAndUpServesAgainOnTheSamePort) {
  Peer before(proxy_->port());
  before.Send("x");
  ASSERT_EQ(before.Receive(1), "x");
  proxy_->SetDown(true);
  EXPECT_EQ(before.Receive(1), "");
  EXPECT_FALSE(Peer(proxy_->port()).connected());
  proxy_->SetDown(false);
  Peer after(proxy_->port());
  after.Send("y");
  EXPECT_EQ(after.Receive(1), "y");
}

TEST_F(FaultProxyTest, SwallowedBytesNeverArriveButLaterOnesDo) {
  Toxics toxics;
  toxics.swallow = true;
  proxy_->Set(FaultDirection::kToClient, toxics);
  Peer peer(proxy_->port());
  peer.Send("lost");
  while (proxy_->NumForwarded(FaultDirection::kToServer) < 4) std::this_thread::yield();
  // The echo of "lost" is swallowed before the next bytes are sent.
  Peer other(proxy_->port());
  other.Send("lost");
  while (proxy_->NumSwallowed() < 8) std::this_thread::yield();
  proxy_->Heal();
  peer.Send("kept");
  EXPECT_EQ(peer.Receive(4), "kept");
}

TEST_F(FaultProxyTest, LatencyAndBandwidthDelayTheBytes) {
  Toxics toxics;
  toxics.latency = absl::Milliseconds(20);
  toxics.bytes_per_second = 1000;
  toxics.slice_bytes = 7;
  proxy_->Set(FaultDirection::kToClient, toxics);
  Peer peer(proxy_->port());
  const absl::Time start = SystemClock::Get().Now();
  const std::string text(50, 'z');
  peer.Send(text);
  EXPECT_EQ(peer.Receive(text.size()), text);
  // 50 bytes at 1,000 bytes/s plus the latency once, on any machine.
  EXPECT_GE(SystemClock::Get().Now() - start, absl::Milliseconds(70));
}

TEST_F(FaultProxyTest, ABurstIsForwardedAtOnce) {
  Toxics toxics;
  toxics.bytes_per_second = 1;
  toxics.burst_bytes = 50;
  toxics.slice_bytes = 7;
  proxy_->Set(FaultDirection::kToClient, toxics);
  Peer peer(proxy_->port());
  const std::string text(50, 'z');
  peer.Send(text);
  // Without a burst they would take 50 s.
  EXPECT_EQ(peer.Receive(text.size()), text);
}

TEST_F(FaultProxyTest, ClosesTheClientOfATargetThatIsGone) {
  int gone = 0;
  {
    const ScriptedServer other([](const std::string&) { return std::nullopt; });
    gone = other.port();
  }
  proxy_->SetTarget(gone);
  Peer peer(proxy_->port());
  EXPECT_EQ(peer.Receive(1), "");
}

}  // namespace
}  // namespace freshet
