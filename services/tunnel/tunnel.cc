#include "services/tunnel/tunnel.h"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <list>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "services/base/log.h"
#include "services/base/log_gate.h"
#include "services/base/mutex.h"
#include "services/base/status_macros.h"
#include "services/base/str_cat.h"
#include "services/base/unique_fd.h"
#include "services/runtime/endpoint_options.h"
#include "services/tunnel/tunnel_link.h"

namespace freshet {
namespace {

constexpr int kBacklog = 128;
constexpr absl::Duration kTick = absl::Seconds(1);

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
          FRESHET_LOG(Warning) << "event=name_not_resolved error=\"" << Message(found.status())
                               << "\"";
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

absl::StatusOr<UniqueFd> Listen(const std::string& listen, const runtime::HostPort& where) {
  FRESHET_ASSIGN_OR_RETURN(const auto addresses, Resolve(where, /*numeric=*/true));
  const SocketAddress& address = addresses.front();
  UniqueFd fd(::socket(address.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const int on = 1;
  const auto* raw = static_cast<const sockaddr*>(static_cast<const void*>(&address.storage));
  if (fd.get() < 0 || ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) != 0 ||
      ::bind(fd.get(), raw, address.size) != 0 || ::listen(fd.get(), kBacklog) != 0) {
    return FailedPrecondition(listen, ": cannot listen there: ", std::strerror(errno));
  }
  return fd;
}

int BoundPort(int fd) {
  sockaddr_storage storage{};
  socklen_t size = sizeof(storage);
  if (::getsockname(fd, static_cast<sockaddr*>(static_cast<void*>(&storage)), &size) != 0) return 0;
  in_port_t port = 0;  // at the same place for both families
  std::memcpy(&port,
              static_cast<char*>(static_cast<void*>(&storage)) + offsetof(sockaddr_in, sin_port),
              sizeof(port));
  return ntohs(port);
}

}  // namespace

// Everything but the constructor and the destructor runs on its thread.
class Tunnel::Loop {
 public:
  Loop(const TunnelOptions& options, std::unique_ptr<TlsContext> context, UniqueFd listener,
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
    while (!stop_) {
      // Without descriptors connections wait in the kernel; asked for, they would keep this thread
      // turning.
      const bool accepts = absl::Now() >= next_accept_;
      waits.assign({{wake_read_.get(), POLLIN, 0}, {accepts ? listener_.get() : -1, POLLIN, 0}});
      bool hurried = false;
      for (const TunnelLink& link : links_) {
        for (const pollfd& wait : link.Waits()) waits.push_back(wait);
        hurried |= link.hurried();
      }
      const int timeout = hurried ? 0 : static_cast<int>(absl::ToInt64Milliseconds(kTick));
      ::poll(waits.data(), waits.size(), timeout);
      const absl::Time now = absl::Now();
      StepLinks(waits, now);
      if (waits[1].revents != 0) Accept(now);
    }
  }

  // `waits` has two entries for each link, after the first two.
  void StepLinks(const std::vector<pollfd>& waits, absl::Time now) {
    const bool all = now >= next_sweep_;  // deadlines
    if (all) next_sweep_ = now + kTick;
    size_t at = 2;
    for (auto link = links_.begin(); link != links_.end(); at += 2) {
      const bool turn =
          all || link->hurried() || waits[at].revents != 0 || waits[at + 1].revents != 0;
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
      UniqueFd fd(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
      if (fd.get() < 0) {
        if (errno == EINTR || errno == ECONNABORTED) continue;
        if (errno == EAGAIN) return;
        Report(ResourceExhausted("accept: ", std::strerror(errno)), now);
        next_accept_ = now + kTick;
        return;
      }
      if (links_.size() >= options_.max_links) {
        Report(ResourceExhausted("more than ", options_.max_links, " connections"), now);
        continue;
      }
      const std::optional<SocketAddress> target = book_.Next();
      links_.emplace_back(*context_, options_.tls.server, std::move(fd),
                          target.has_value() ? &*target : nullptr, now,
                          now + options_.setup_timeout);
      if (links_.back().Step(now)) continue;
      Report(links_.back().status(), now);
      links_.pop_back();
    }
  }

  void Report(const absl::Status& status, absl::Time now) {
    if (status.ok() || !gate_.Admit(Message(status), now)) return;
    FRESHET_LOG(Warning) << "event=connection_failed target=" << options_.connect << " error=\""
                         << Message(status) << "\"";
  }

  const TunnelOptions options_;
  const std::unique_ptr<TlsContext> context_;
  const UniqueFd listener_;
  const UniqueFd wake_read_;
  const UniqueFd wake_write_;
  const std::string address_;
  AddressBook book_;
  std::list<TunnelLink> links_;
  LogGate gate_{absl::Seconds(10)};
  absl::Time next_sweep_ = absl::InfinitePast();
  absl::Time next_accept_ = absl::InfinitePast();
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

absl::StatusOr<std::unique_ptr<Tunnel>> Tunnel::Start(const TunnelOptions& options) {
  FRESHET_RETURN_IF_ERROR(ValidateTunnel(options));
  FRESHET_ASSIGN_OR_RETURN(std::unique_ptr<TlsContext> context, TlsContext::Create(options.tls));
  const runtime::HostPort where = *runtime::ParseHostPort(options.listen);
  FRESHET_ASSIGN_OR_RETURN(UniqueFd listener, Listen(options.listen, where));
  int ends[2] = {-1, -1};
  if (::pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) {
    return ResourceExhausted("no pipe: ", std::strerror(errno));
  }
  UniqueFd wake_read(ends[0]);
  UniqueFd wake_write(ends[1]);
  std::string address = runtime::JoinHostPort(where.host, BoundPort(listener.get()));
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
