#include "services/tunnel/tunnel.h"

#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <list>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "base/listener.h"
#include "base/log.h"
#include "base/log_gate.h"
#include "base/mutex.h"
#include "base/status_macros.h"
#include "base/str_cat.h"
#include "base/unique_fd.h"
#include "services/runtime/endpoint_options.h"
#include "services/tunnel/tunnel_link.h"

namespace freshet {
namespace {

constexpr int kBacklog = 128;
constexpr absl::Duration kTick = absl::Seconds(1);
// For standard streams, sockets of the loop and of the resolver, files of certificates.
constexpr uint64_t kSpareDescriptors = 16;
// Places of what is no link in what poll is asked about.
constexpr size_t kWakeWait = 0;
constexpr size_t kListenerWait = 1;
constexpr size_t kNumOwnWaits = 2;

// Looks `where` up. Blocks as long as the resolver does.
absl::StatusOr<std::vector<SocketAddress>> Resolve(const runtime::HostPort& where, bool numeric) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV | (numeric ? AI_NUMERICHOST : 0);
  addrinfo* found = nullptr;
  const std::string host = where.host == "localhost" ? "127.0.0.1" : where.host;
  const int error = ::getaddrinfo(host.c_str(), std::to_string(where.port).c_str(), &hints, &found);
  if (error != 0) {
    return StatusOf(absl::StatusCode::kUnavailable, where.host, ": ", ::gai_strerror(error));
  }
  std::vector<SocketAddress> addresses;
  for (const addrinfo* one = found; one != nullptr; one = one->ai_next) {
    SocketAddress address;
    if (one->ai_addrlen > sizeof(address.storage)) continue;
    std::memcpy(&address.storage, one->ai_addr, one->ai_addrlen);
    address.size = one->ai_addrlen;
    addresses.push_back(address);
  }
  ::freeaddrinfo(found);
  if (addresses.empty()) {
    return StatusOf(absl::StatusCode::kUnavailable, where.host, ": no address");
  }
  return addresses;
}

// Keeps the addresses of a name fresh, on a thread of its own: a slow resolver
// holds up no bytes.
class AddressBook {
 public:
  AddressBook(const runtime::HostPort& where, absl::Duration period)
      : where_(where), period_(period) {
    if (auto fixed = Resolve(where_, /*numeric=*/true); fixed.ok()) {
      MutexLock lock(mu_);
      addresses_ = *std::move(fixed);
      return;
    }
    thread_ = std::thread([this] { Run(); });
  }
  ~AddressBook() {
    stop_.Notify();
    if (thread_.joinable()) thread_.join();
  }

  // One address after the other; nothing before the first answer.
  std::optional<SocketAddress> Next() {
    MutexLock lock(mu_);
    if (addresses_.empty()) return std::nullopt;
    next_ = (next_ + 1) % addresses_.size();
    return addresses_[next_];
  }

 private:
  void Run() {
    LogGate gate;
    do {
      absl::StatusOr<std::vector<SocketAddress>> found = Resolve(where_, /*numeric=*/false);
      if (!found.ok()) {
        if (gate.Admit(Message(found.status()), absl::Now())) {
          FRESHET_LOG(Warning) << "event=name_not_resolved error="
                               << LogQuoted(Message(found.status()));
        }
        continue;
      }
      MutexLock lock(mu_);
      addresses_ = *std::move(found);
    } while (!stop_.WaitFor(Period()));
  }
  // Without any address it is asked more often.
  absl::Duration Period() {
    MutexLock lock(mu_);
    return addresses_.empty() ? kTick : period_;
  }

  const runtime::HostPort where_;
  const absl::Duration period_;
  Notification stop_;
  Mutex mu_;
  std::vector<SocketAddress> addresses_ ABSL_GUARDED_BY(mu_);
  size_t next_ ABSL_GUARDED_BY(mu_) = 0;
  std::thread thread_;  // last: it uses the others
};

// The soft limit: what more cannot be opened, and what poll can be asked about.
uint64_t MaxDescriptors() {
  rlimit limit{};
  return ::getrlimit(RLIMIT_NOFILE, &limit) == 0 ? limit.rlim_cur : kSpareDescriptors;
}

}  // namespace

// Everything but the constructor and the destructor runs on its thread.
class Tunnel::Loop {
 public:
  Loop(const TunnelOptions& options, std::unique_ptr<TlsContext> context, Listener listener,
       UniqueFd wake_read, UniqueFd wake_write, std::string address,
       const runtime::HostPort& target)
      : options_(options),
        context_(std::move(context)),
        listener_(std::move(listener)),
        wake_read_(std::move(wake_read)),
        wake_write_(std::move(wake_write)),
        address_(std::move(address)),
        book_(target, options.resolve_period),
        thread_([this] { Run(); }) {}
  ~Loop() {
    stop_ = true;
    const char byte = 0;
    while (::write(wake_write_.get(), &byte, 1) < 0 && errno == EINTR) {
    }
    thread_.join();
  }
  const std::string& address() const { return address_; }

 private:
  void Run() {
    std::vector<pollfd> waits;
    std::vector<size_t> ends;  // of each link's entries in `waits`; the first begin at kNumOwnWaits
    while (!stop_) {
      waits.assign({{wake_read_.get(), POLLIN, 0}, {listener_.WaitFd(absl::Now()), POLLIN, 0}});
      ends.clear();
      bool hurried = false;
      for (const TunnelLink& link : links_) {
        link.AddWaits(waits);
        ends.push_back(waits.size());
        hurried |= link.hurried();
      }
      Wait(waits, hurried ? absl::ZeroDuration() : kTick);
      const absl::Time now = absl::Now();
      StepLinks(waits, ends, now);
      if (waits[kListenerWait].revents != 0) Accept(now);
    }
  }

  void Wait(std::vector<pollfd>& waits, absl::Duration wait) {
    const int timeout = static_cast<int>(absl::ToInt64Milliseconds(wait));
    if (::poll(waits.data(), waits.size(), timeout) >= 0 || errno == EINTR) return;
    const std::string error = std::strerror(errno);
    if (poll_gate_.Admit(error, absl::Now())) {
      FRESHET_LOG(Error) << "event=poll_failed descriptors=" << waits.size()
                         << " error=" << LogQuoted(error);
    }
    // Asked again at once it would fail again. Links have their turn at every tick.
    ::poll(&waits[kWakeWait], 1, timeout);
  }

  void StepLinks(const std::vector<pollfd>& waits, const std::vector<size_t>& ends,
                 absl::Time now) {
    const bool all = now >= next_sweep_;  // deadlines
    if (all) next_sweep_ = now + kTick;
    size_t at = kNumOwnWaits;
    auto end = ends.begin();
    for (auto link = links_.begin(); link != links_.end(); ++end) {
      bool turn = all || link->hurried();
      for (; at < *end; ++at) turn |= waits[at].revents != 0;
      if (turn && !link->Step(now)) {
        Report(link->status(), now);
        link = links_.erase(link);
      } else {
        ++link;
      }
    }
  }

  void Accept(absl::Time now) {
    for (int i = 0; i < kBacklog; ++i) {
      absl::StatusOr<UniqueFd> fd = listener_.Accept(now);
      if (!fd.ok()) return Report(fd.status(), now);
      if (fd->get() < 0) return;
      if (links_.size() >= options_.max_links) {
        Report(ResourceExhausted("more than ", options_.max_links, " connections"), now);
        continue;
      }
      const std::optional<SocketAddress> target = book_.Next();
      links_.emplace_back(*context_, options_.tls.server, *std::move(fd),
                          target.has_value() ? &*target : nullptr, now,
                          now + options_.setup_timeout);
      if (links_.back().Step(now)) continue;
      Report(links_.back().status(), now);
      links_.pop_back();
    }
  }

  void Report(const absl::Status& status, absl::Time now) {
    if (status.ok() || !gate_.Admit(Message(status), now)) return;
    FRESHET_LOG(Warning) << "event=connection_failed target=" << options_.connect
                         << " error=" << LogQuoted(Message(status));
  }

  const TunnelOptions options_;
  const std::unique_ptr<TlsContext> context_;
  Listener listener_;
  const UniqueFd wake_read_;
  const UniqueFd wake_write_;
  const std::string address_;
  AddressBook book_;
  std::list<TunnelLink> links_;
  LogGate gate_{absl::Seconds(10)};
  LogGate poll_gate_;
  absl::Time next_sweep_ = absl::InfinitePast();
  std::atomic<bool> stop_ = false;
  std::thread thread_;  // last: it uses the others
};

absl::Status ValidateTunnel(const TunnelOptions& options) {
  const std::string listen = options.tls.server ? "--tls-listen" : "--plain-listen";
  const std::string connect = options.tls.server ? "--plain-connect" : "--tls-connect";
  if (!runtime::ParseHostPort(options.listen).has_value()) {
    return InvalidArgument(listen, " ", options.listen, " is not HOST:PORT");
  }
  const auto target = runtime::ParseHostPort(options.connect);
  if (!target.has_value() || target->port == 0) {
    return InvalidArgument(connect, " ", options.connect, " is not HOST:PORT");
  }
  const std::string& plain = options.tls.server ? options.connect : options.listen;
  if (!runtime::IsLoopback(plain)) {
    return InvalidArgument(options.tls.server ? connect : listen, " ", plain,
                           " is not a loopback address: that side is not encrypted");
  }
  return ValidateTunnelTls(options.tls);
}

LinkBound BoundLinks(size_t wanted, uint64_t max_descriptors) {
  const uint64_t room =
      max_descriptors > kSpareDescriptors ? (max_descriptors - kSpareDescriptors) / 2 : 0;
  const uint64_t links = std::max<uint64_t>(room, 1);
  if (links >= wanted) return {wanted, ""};
  return {static_cast<size_t>(links), StrCat(max_descriptors, " descriptors are enough for ", links,
                                             " connections, not for ", wanted)};
}

absl::StatusOr<std::unique_ptr<Tunnel>> Tunnel::Start(const TunnelOptions& wanted) {
  FRESHET_RETURN_IF_ERROR(ValidateTunnel(wanted));
  TunnelOptions options = wanted;
  const LinkBound bound = BoundLinks(wanted.max_links, MaxDescriptors());
  options.max_links = bound.links;
  if (!bound.reason.empty()) {
    FRESHET_LOG(Warning) << "event=connections_bounded reason=" << LogQuoted(bound.reason);
  }
  FRESHET_ASSIGN_OR_RETURN(std::unique_ptr<TlsContext> context, TlsContext::Create(options.tls));
  const runtime::HostPort where = *runtime::ParseHostPort(options.listen);
  FRESHET_ASSIGN_OR_RETURN(const auto addresses, Resolve(where, /*numeric=*/true));
  FRESHET_ASSIGN_OR_RETURN(
      Listener listener,
      Listener::On(addresses.front().storage, addresses.front().size, kBacklog, options.listen));
  int ends[2] = {-1, -1};
  if (::pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) {
    return ResourceExhausted("no pipe: ", std::strerror(errno));
  }
  UniqueFd wake_read(ends[0]);
  UniqueFd wake_write(ends[1]);
  std::string address = runtime::JoinHostPort(where.host, listener.port());
  return std::unique_ptr<Tunnel>(new Tunnel(std::make_unique<Loop>(
      options, std::move(context), std::move(listener), std::move(wake_read), std::move(wake_write),
      std::move(address), *runtime::ParseHostPort(options.connect))));
}

Tunnel::Tunnel(std::unique_ptr<Loop> loop) : loop_(std::move(loop)) {}
Tunnel::~Tunnel() = default;

const std::string& Tunnel::address() const { return loop_->address(); }

absl::Status CheckListening(const std::string& address) {
  const auto where = runtime::ParseHostPort(address);
  if (!where.has_value()) return InvalidArgument("--check ", address, " is not HOST:PORT");
  FRESHET_ASSIGN_OR_RETURN(const auto addresses, Resolve(*where, /*numeric=*/true));
  FRESHET_ASSIGN_OR_RETURN(const UniqueFd fd, BeginConnect(addresses.front()));
  pollfd wait{fd.get(), POLLOUT, 0};
  int error = ETIMEDOUT;
  socklen_t size = sizeof(error);
  if (::poll(&wait, 1, 2000) > 0) ::getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error, &size);
  if (error == 0) return absl::OkStatus();
  return StatusOf(absl::StatusCode::kUnavailable, address, ": ", std::strerror(error));
}

}  // namespace freshet
