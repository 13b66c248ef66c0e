#include <signal.h>
#include <sys/resource.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string>

#include "CLI/CLI.hpp"
#include "base/log.h"
#include "base/str_cat.h"
#include "base/version.h"
#include "services/runtime/endpoint_options.h"
#include "services/tunnel/tunnel.h"

namespace freshet {
namespace {

constexpr int kExitCommandLine = 2;
constexpr int kExitContent = 3;
constexpr int kExitNoConnection = 7;

struct Flags {
  std::string tls_listen, plain_listen, tls_connect, plain_connect, check;
  TunnelTls tls;
  size_t max_connections = TunnelOptions().max_links;
};

int Fail(const absl::Status& status, int code) {
  std::fprintf(stderr, "freshet-tunnel: %s\n", Message(status).c_str());
  return code;
}

void AddFlags(CLI::App& app, Flags& flags) {
  app.set_version_flag("--version", VersionLine(app.get_name()));
  app.add_option("--plain-listen", flags.plain_listen,
                 "HOST:PORT on loopback for a program without TLS; with --tls-connect");
  app.add_option("--tls-connect", flags.tls_connect, "HOST:PORT of the TLS server");
  app.add_option("--tls-listen", flags.tls_listen, "HOST:PORT for TLS; with --plain-connect");
  app.add_option("--plain-connect", flags.plain_connect,
                 "HOST:PORT on loopback of a server without TLS");
  app.add_option("--tls-cert", flags.tls.cert, "PEM file: our certificate chain");
  app.add_option("--tls-key", flags.tls.key, "PEM file: its private key");
  app.add_option("--tls-ca", flags.tls.ca, "PEM file: roots that the peer is checked against");
  app.add_flag("--tls-public-roots", flags.tls.public_roots, "the system's roots instead");
  app.add_option("--tls-peer-name", flags.tls.peer_name, "name in the server's certificate");
  app.add_option("--tls-allow", flags.tls.allow,
                 "who may connect, by the name in the certificate: exact, "
                 "prefix*, *suffix; "
                 "several times; default: everybody with a certificate");
  app.add_option("--max-connections", flags.max_connections,
                 "more are closed at once; each takes 50 to 110 kB")
      ->check(CLI::Range(size_t{1}, size_t{1} << 16))
      ->capture_default_str();
  app.add_option("--check", flags.check, "only say whether HOST:PORT accepts connections");
}

// SIGTERM and SIGINT, blocked in every thread that is started later.
sigset_t BlockStopSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  ::signal(SIGPIPE, SIG_IGN);
  return signals;
}

// Connections take two descriptors each, and the soft limit is often 1024 for the sake of programs
// that use select.
void RaiseDescriptorLimit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= limit.rlim_max) return;
  limit.rlim_cur = limit.rlim_max;
  if (::setrlimit(RLIMIT_NOFILE, &limit) != 0) {
    FRESHET_LOG(Warning) << "event=descriptor_limit_kept error=" << LogQuoted(std::strerror(errno));
  }
}

int Main(int argc, char** argv) {
  CLI::App app(
      "Brings the connections of a program without TLS into TLS "
      "(--plain-listen, --tls-connect), "
      "or TLS connections to a server without it (--tls-listen, "
      "--plain-connect). Certificates are "
      "read again when their files change.",
      "freshet-tunnel");
  Flags flags;
  AddFlags(app, flags);
  if (const auto code = runtime::ParseCommandLine(app, argc, argv)) return *code;
  if (!flags.check.empty()) {
    const absl::Status status = CheckListening(flags.check);
    if (absl::IsInvalidArgument(status)) return Fail(status, kExitCommandLine);
    return status.ok() ? 0 : Fail(status, kExitNoConnection);
  }
  const bool client = !flags.plain_listen.empty() && !flags.tls_connect.empty();
  const bool server = !flags.tls_listen.empty() && !flags.plain_connect.empty();
  const bool both = !(flags.plain_listen.empty() && flags.tls_connect.empty()) &&
                    !(flags.tls_listen.empty() && flags.plain_connect.empty());
  if (client == server || both) {
    return Fail(InvalidArgument("give --plain-listen with --tls-connect, or --tls-listen with "
                                "--plain-connect"),
                kExitCommandLine);
  }
  TunnelOptions options;
  options.tls = flags.tls;
  options.tls.server = server;
  options.max_links = flags.max_connections;
  options.listen = server ? flags.tls_listen : flags.plain_listen;
  options.connect = server ? flags.plain_connect : flags.tls_connect;
  if (const absl::Status status = ValidateTunnel(options); !status.ok()) {
    return Fail(status, kExitCommandLine);
  }
  const sigset_t signals = BlockStopSignals();
  RaiseDescriptorLimit();
  const auto tunnel = Tunnel::Start(options);
  if (!tunnel.ok()) return Fail(tunnel.status(), kExitContent);
  std::printf("ready tunnel listen=%s connect=%s\n", (*tunnel)->address().c_str(),
              options.connect.c_str());
  std::fflush(stdout);
  int number = 0;
  sigwait(&signals, &number);
  FRESHET_LOG(Info) << "event=stop signal=" << number;
  return 0;
}

}  // namespace
}  // namespace freshet

int main(int argc, char** argv) { return freshet::Main(argc, argv); }
