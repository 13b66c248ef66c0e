#include "services/runtime/serve.h"

#include <fcntl.h>
#include <prometheus/registry.h>
#include <signal.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <optional>
#include <utility>

#include "absl/time/clock.h"
#include "base/log.h"
#include "base/mutex.h"
#include "base/str_cat.h"
#include "services/runtime/certificate_metrics.h"
#include "services/runtime/http_server.h"
#include "services/runtime/process_metrics.h"
#include "services/runtime/server.h"

namespace freshet::runtime {
namespace {

constexpr int kExitOk = 0;
constexpr int kExitInternal = 1;
constexpr int kExitCommandLine = 2;
constexpr int kExitContent = 3;
constexpr int kExitNoConnection = 7;
constexpr int kExitInterrupted = 130;

int ContentCode(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kDataLoss:
      return kExitContent;
    case absl::StatusCode::kUnavailable:
      return kExitNoConnection;
    default:
      return kExitInternal;
  }
}

std::atomic<int> signal_fd{-1};
std::atomic<int> signals_seen{0};

void WriteByte(int fd) {
  const char byte = 0;
  while (::write(fd, &byte, 1) < 0 && errno == EINTR) {
  }
}

void OnSignal(int) {
  const int saved = errno;
  if (signals_seen.fetch_add(1) > 0) ::_exit(kExitInterrupted);
  WriteByte(signal_fd.load());
  errno = saved;
}

// SIGTERM, SIGINT and requests of the role, as bytes in a pipe that one thread reads.
class StopRequests {
 public:
  StopRequests() {
    FRESHET_CHECK(::pipe2(pipe_.data(), O_CLOEXEC | O_NONBLOCK) == 0);
    // The read end blocks.
    ::fcntl(pipe_[0], F_SETFL, 0);
    signals_seen = 0;
    signal_fd = pipe_[1];
    struct sigaction action {};
    action.sa_handler = OnSignal;
    sigemptyset(&action.sa_mask);
    ::sigaction(SIGTERM, &action, &old_term_);
    ::sigaction(SIGINT, &action, &old_int_);
    ::signal(SIGPIPE, SIG_IGN);
  }
  ~StopRequests() {
    ::sigaction(SIGTERM, &old_term_, nullptr);
    ::sigaction(SIGINT, &old_int_, nullptr);
    ::close(pipe_[0]);
    ::close(pipe_[1]);
  }
  StopRequests(const StopRequests&) = delete;
  StopRequests& operator=(const StopRequests&) = delete;

  // Callable from any thread; the first error is kept.
  void Request(const absl::Status& status) ABSL_LOCKS_EXCLUDED(mu_) {
    {
      MutexLock lock(mu_);
      status_.Update(status);
    }
    WriteByte(pipe_[1]);
  }
  // Waits for a signal or a request, and returns the latter's status.
  absl::Status Await() ABSL_LOCKS_EXCLUDED(mu_) {
    char byte = 0;
    while (::read(pipe_[0], &byte, 1) < 0 && errno == EINTR) {
    }
    MutexLock lock(mu_);
    return status_;
  }

 private:
  std::array<int, 2> pipe_{};
  struct sigaction old_term_ {};
  struct sigaction old_int_ {};
  Mutex mu_;
  absl::Status status_ ABSL_GUARDED_BY(mu_);
};

int Fail(const std::string& role, const absl::Status& status, int code) {
  std::fprintf(stderr, "freshet-%s: %s\n", role.c_str(), Message(status).c_str());
  return code;
}

std::string HostOf(const std::string& advertise) {
  const auto parsed = ParseHostPort(advertise);
  return parsed.has_value() ? parsed->host : advertise;
}

// Turns readiness off, drains the role, then shuts the server down.
absl::Status EndInOrder(Role& role, const ServeOptions& options, Readiness& readiness,
                        Server& server) {
  readiness.Set("serving", false, "draining");
  const absl::Status drained = role.Drain(absl::Now() + options.endpoint.drain_timeout);
  server.Shutdown(absl::Now() + options.shutdown_grace);
  return drained;
}

}  // namespace

int Serve(Role& role, const ServeOptions& options) {
  SetLogRole(options.role);
  if (const absl::Status status = ValidateEndpoint(options.endpoint); !status.ok()) {
    return Fail(options.role, status, kExitCommandLine);
  }
  StopRequests stop;
  const auto registry =
      options.registry ? options.registry : std::make_shared<prometheus::Registry>();
  Readiness readiness;
  readiness.Set("serving", false, "starting");
  auto server = Server::Start(options.endpoint, role.Services(), registry);
  if (!server.ok()) return Fail(options.role, server.status(), kExitContent);
  readiness.OnChange([&](bool ready) { (*server)->SetServing(ready); });

  std::unique_ptr<HttpServer> http;
  RoleContext context;
  context.grpc_address = AdvertisedAddress(options.endpoint.advertise, (*server)->address());
  ProcessMetrics process(*registry, options.role, options.version);
  std::optional<CertificateMetrics> certificate;
  if (!options.endpoint.tls.cert.empty()) {
    certificate.emplace(*registry, options.endpoint.tls.cert, options.endpoint.tls.ca);
  }
  if (!options.endpoint.http_listen.empty()) {
    auto started =
        HttpServer::Start(options.endpoint.http_listen, ProbeRoutes(readiness, *registry, [&] {
                            process.Refresh();
                            if (certificate.has_value()) certificate->Refresh();
                            if (options.before_scrape) options.before_scrape();
                          }));
    if (!started.ok()) return Fail(options.role, started.status(), kExitContent);
    http = *std::move(started);
    context.http_address =
        IsLoopback(http->address())
            ? http->address()
            : AdvertisedAddress(HostOf(options.endpoint.advertise), http->address());
  }
  context.readiness = &readiness;
  context.request_drain = [&stop](const absl::Status& status) { stop.Request(status); };

  const absl::Status started = role.Start(context);
  if (!started.ok()) {
    (*server)->Shutdown(absl::Now());
    role.Stop();
    readiness.OnChange(nullptr);
    return Fail(options.role, started, ContentCode(started));
  }
  readiness.Set("serving", true);
  std::printf("ready %s grpc=%s http=%s%s\n", options.role.c_str(), (*server)->address().c_str(),
              http == nullptr ? "-" : http->address().c_str(),
              options.ready_fields ? options.ready_fields().c_str() : "");
  std::fflush(stdout);

  absl::Status result = stop.Await();
  FRESHET_LOG(Info) << "event=drain";
  const absl::Status drained = EndInOrder(role, options, readiness, **server);
  role.Stop();
  readiness.OnChange(nullptr);
  result.Update(drained);
  if (!result.ok()) return Fail(options.role, result, kExitInternal);
  return kExitOk;
}

}  // namespace freshet::runtime
