#include "tests/fault_proxy/fault_proxy.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "base/clock.h"
#include "base/log.h"
#include "base/str_cat.h"

namespace freshet {
namespace {

constexpr std::array<FaultDirection, 2> kDirections = {FaultDirection::kToServer,
                                                       FaultDirection::kToClient};

sockaddr_in Loopback(int port) {
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

// Returns a listening socket on `port` (0: any), or -1.
int Listen(int port) {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  const int on = 1;
  ::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  const sockaddr_in address = Loopback(port);
  if (::bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0 &&
      ::listen(fd, 64) == 0) {
    return fd;
  }
  ::close(fd);
  return -1;
}

int PortOf(int listener) {
  sockaddr_in address = {};
  socklen_t size = sizeof(address);
  ::getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size);
  return ntohs(address.sin_port);
}

void MakeReady(int fd) {
  const int on = 1;
  ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  ::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) | O_NONBLOCK);
}

int PollMillis(absl::Time due) {
  if (due == absl::InfiniteFuture()) return -1;
  const absl::Duration left = std::clamp(due - SystemClock::Get().Now(), absl::ZeroDuration(),
                                         absl::Duration(absl::Minutes(1)));
  return static_cast<int>(absl::ToInt64Milliseconds(absl::Ceil(left, absl::Milliseconds(1))));
}

}  // namespace

absl::StatusOr<std::unique_ptr<FaultProxy>> FaultProxy::Start(int target_port) {
  const int listener = Listen(0);
  if (listener < 0) return Internal("fault proxy: no port to listen on");
  const int wake = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  FRESHET_CHECK(wake >= 0);
  return std::unique_ptr<FaultProxy>(new FaultProxy(target_port, PortOf(listener), listener, wake));
}

FaultProxy::FaultProxy(int target_port, int port, int listener, int wake)
    : port_(port), wake_(wake), listener_(listener) {
  {
    MutexLock lock(mu_);
    settings_.target_port = target_port;
  }
  thread_ = std::jthread([this](const std::stop_token& stop) { Run(stop); });
}

FaultProxy::~FaultProxy() {
  thread_.request_stop();
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(wake_, &one, sizeof(one));
  thread_.join();
  if (listener_ >= 0) ::close(listener_);
  ::close(wake_);
}

template <typename Change>
void FaultProxy::Apply(Change change) {
  MutexLock lock(mu_);
  const int64_t generation = ++settings_.generation;
  change(settings_);
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(wake_, &one, sizeof(one));
  while (applied_ < generation) applied_changed_.WaitFor(mu_, absl::Seconds(1));
}

void FaultProxy::Set(FaultDirection direction, const Toxics& toxics) {
  const auto index = static_cast<size_t>(direction);
  Apply([&](Settings& settings) {
    settings.toxics[index] = toxics;
    settings.toxics_set[index] = settings.generation;
  });
}

void FaultProxy::Heal() {
  Apply([](Settings& settings) {
    settings.toxics = {};
    settings.toxics_set = {settings.generation, settings.generation};
    settings.down = false;
  });
}

void FaultProxy::SetDown(bool down) {
  Apply([down](Settings& settings) { settings.down = down; });
}

void FaultProxy::ResetPeers() {
  Apply([](Settings& settings) { ++settings.resets; });
}

void FaultProxy::SetTarget(int target_port) {
  Apply([target_port](Settings& settings) { settings.target_port = target_port; });
}

int64_t FaultProxy::NumAccepted() const {
  MutexLock lock(mu_);
  return num_accepted_;
}

int64_t FaultProxy::NumForwarded(FaultDirection direction) const {
  MutexLock lock(mu_);
  return num_forwarded_[static_cast<size_t>(direction)];
}

int64_t FaultProxy::NumSwallowed() const {
  MutexLock lock(mu_);
  return num_swallowed_;
}

int64_t FaultProxy::NumCut() const {
  MutexLock lock(mu_);
  return num_cut_;
}

void FaultProxy::Obey(const Settings& settings, const Settings& former) {
  int64_t cut = 0;
  for (const std::unique_ptr<FaultLink>& link : links_) {
    for (const FaultDirection direction : kDirections) {
      const auto index = static_cast<size_t>(direction);
      if (settings.toxics_set[index] == former.toxics_set[index]) continue;
      link->Set(direction, settings.toxics[index]);
    }
    const bool reset = settings.resets != former.resets;
    if (reset || settings.down) {
      link->Cut(reset);
      ++cut;
    }
  }
  std::erase_if(links_, [](const auto& link) { return link->closed(); });
  if (settings.down && listener_ >= 0) ::close(std::exchange(listener_, -1));
  if (!settings.down && listener_ < 0) {
    listener_ = Listen(port_);
    FRESHET_CHECK(listener_ >= 0);  // the port is not reused while the proxy is down
  }
  MutexLock lock(mu_);
  num_cut_ += cut;
  applied_ = settings.generation;
  applied_changed_.NotifyAll();
}

void FaultProxy::Accept(const Settings& settings) {
  const int client = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
  if (client < 0) return;
  const int server = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const sockaddr_in address = Loopback(settings.target_port);
  if (::connect(server, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
    ::close(server);
    ::close(client);
    return;
  }
  MakeReady(client);
  MakeReady(server);
  links_.push_back(std::make_unique<FaultLink>(client, server));
  for (const FaultDirection direction : kDirections) {
    links_.back()->Set(direction, settings.toxics[static_cast<size_t>(direction)]);
  }
  MutexLock lock(mu_);
  ++num_accepted_;
}

void FaultProxy::Count() {
  MutexLock lock(mu_);
  for (const std::unique_ptr<FaultLink>& link : links_) {
    for (const FaultDirection direction : kDirections) {
      num_forwarded_[static_cast<size_t>(direction)] += link->TakeForwarded(direction);
    }
    num_swallowed_ += link->TakeSwallowed();
    if (link->closed() && link->cut_by_fault()) ++num_cut_;
  }
}

void FaultProxy::Run(const std::stop_token& stop) {
  Settings settings;
  settings.generation = -1;
  while (!stop.stop_requested()) {
    Settings next;
    {
      MutexLock lock(mu_);
      next = settings_;
    }
    if (next.generation != settings.generation) Obey(next, settings);
    settings = next;
    std::vector<pollfd> fds = {{wake_, POLLIN, 0}, {listener_, POLLIN, 0}};
    absl::Time due = absl::InfiniteFuture();
    for (const std::unique_ptr<FaultLink>& link : links_) {
      const std::array<pollfd, 2> set = link->PollSet();
      fds.insert(fds.end(), set.begin(), set.end());
      due = std::min(due, link->NextDue());
    }
    ::poll(fds.data(), fds.size(), PollMillis(due));
    uint64_t wakes = 0;
    [[maybe_unused]] const ssize_t taken = ::read(wake_, &wakes, sizeof(wakes));
    const absl::Time now = SystemClock::Get().Now();
    for (size_t i = 0; i < links_.size(); ++i) {
      links_[i]->Pump({fds[2 + 2 * i], fds[3 + 2 * i]}, now);
    }
    Count();
    std::erase_if(links_, [](const auto& link) { return link->closed(); });
    if ((fds[1].revents & POLLIN) != 0) Accept(settings);
  }
}

}  // namespace freshet
