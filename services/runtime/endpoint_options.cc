#include "services/runtime/endpoint_options.h"

#include <arpa/inet.h>

#include <array>
#include <charconv>
#include <cstdio>
#include <utility>

#include "absl/strings/ascii.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "base/str_cat.h"
#include "base/version.h"
#include "services/runtime/peer_name.h"

namespace freshet::runtime {
namespace {

bool IsUnix(const std::string& address) { return address.starts_with("unix:"); }

absl::Status CheckTls(const EndpointOptions& o) {
  if (!o.tls.enabled()) {
    const std::array<std::pair<const char*, const std::string*>, 3> need_tls = {
        {{"--authz-policy", &o.authz_policy},
         {"--users", &o.users},
         {"--tls-peer-name", &o.tls_peer_name}}};
    for (const auto& [flag, value] : need_tls) {
      if (value->empty()) continue;
      return InvalidArgument(flag, " needs TLS: give --tls-cert, --tls-key and --tls-ca");
    }
    return absl::OkStatus();
  }
  if (o.tls.cert.empty() || o.tls.key.empty()) {
    return InvalidArgument("--tls-cert and --tls-key go together: ",
                           o.tls.cert.empty() ? "--tls-cert" : "--tls-key", " is missing");
  }
  if (o.require_client_cert && o.tls.ca.empty()) {
    return InvalidArgument(
        "--tls-ca is missing: client certificates are checked against it; give it, or "
        "--tls-no-client-cert");
  }
  if (!o.users.empty() && o.authz_policy.empty()) {
    return InvalidArgument(
        "--users needs --authz-policy, which defines what roles may call; without it everyone may "
        "call everything");
  }
  if (!o.tls_peer_name.empty()) FRESHET_RETURN_IF_ERROR(ValidatePeerName(o.tls_peer_name));
  if (o.tls.refresh < absl::Seconds(1)) {
    return InvalidArgument("the TLS files are reread every ", absl::FormatDuration(o.tls.refresh),
                           ", at least 1s is needed");
  }
  return absl::OkStatus();
}

absl::Status CheckRange(const char* flag, int64_t value, int64_t low, int64_t high) {
  if (value >= low && value <= high) return absl::OkStatus();
  return InvalidArgument(flag, " ", value, " is not between ", low, " and ", high);
}

}  // namespace

void AddEndpointFlags(const Command& app, EndpointOptions& options) {
  EndpointOptions* o = &options;
  app.AddVersionFlag(VersionLine(app.name()));
  app.Add("--listen", o->listen, "HOST:PORT of the gRPC services; port 0: any free one")
      .ShowDefault();
  app.Add("--http-listen", o->http_listen,
          "HOST:PORT of /healthz, /readyz and /metrics; empty: none")
      .ShowDefault();
  app.Add("--advertise", o->advertise, "HOST or HOST:PORT by which others reach this process");
  app.Add("--tls-cert", o->tls.cert, "PEM file: certificate chain of this process");
  app.Add("--tls-key", o->tls.key, "PEM file: its private key");
  app.Add("--tls-ca", o->tls.ca, "PEM file: CA certificates that verify peers");
  bool& no_client_cert = app.Keep(false);
  app.AddFlag("--tls-no-client-cert", no_client_cert, "accept clients without a certificate");
  app.Add("--tls-peer-name", o->tls_peer_name,
          "name in the certificates of cluster members, regardless of their address; {role} "
          "is replaced by the callee's role");
  app.AddFlag("--insecure", o->insecure, "allow plaintext on non-loopback addresses");
  app.Add("--cluster-token-file", o->cluster_token_file,
          "file with the shared secret of a loopback cluster");
  app.Add("--authz-policy", o->authz_policy, "JSON file: which peers may call what");
  app.AddFlag("--reflection", o->reflection, "serve gRPC reflection");
  app.Add("--max-message-bytes", o->max_message_bytes, "largest gRPC message").ShowDefault();
  app.Add("--max-concurrent-streams", o->max_concurrent_streams, "concurrent calls per connection")
      .ShowDefault();
  int64_t& drain_ms = app.Keep(absl::ToInt64Milliseconds(o->drain_timeout));
  app.Add("--drain-timeout-ms", drain_ms, "time to finish or hand back work after SIGTERM");
  AddLogFlag(app);
  app.AfterParsing([o, &no_client_cert, &drain_ms] {
    if (no_client_cert) o->require_client_cert = false;
    o->drain_timeout = absl::Milliseconds(drain_ms);
    return ValidateEndpoint(*o);
  });
}

void AddLogFlag(const Command& app) {
  std::string& format = app.Keep<std::string>();
  app.Add("--log-format", format, "format of log lines on stderr: text (KEY=VALUE) or json")
      .OneOf({"text", "json"});
  app.AfterParsing([&format] {
    if (!format.empty()) SetLogFormat(format == "json" ? LogFormat::kJson : LogFormat::kText);
    return absl::OkStatus();
  });
}

void AddUsersFlag(const Command& app, EndpointOptions& options) {
  app.Add("--users", options.users,
          "JSON file: users, their roles and the SHA-256 of their tokens");
}

absl::Status ValidateEndpoint(const EndpointOptions& o) {
  if (!IsUnix(o.listen) && !ParseHostPort(o.listen).has_value()) {
    return InvalidArgument("--listen ", o.listen, " is not HOST:PORT");
  }
  if (!o.http_listen.empty() && !ParseHostPort(o.http_listen).has_value()) {
    return InvalidArgument("--http-listen ", o.http_listen, " is not HOST:PORT");
  }
  FRESHET_RETURN_IF_ERROR(CheckTls(o));
  if (!o.tls.enabled() && !o.insecure && !IsLoopback(o.listen)) {
    return InvalidArgument("--listen ", o.listen,
                           " is not a loopback address: give --tls-cert, --tls-key and --tls-ca, "
                           "or --insecure for plaintext");
  }
  if (!o.cluster_token_file.empty() && (o.tls.enabled() || !IsLoopback(o.listen))) {
    return InvalidArgument(
        "--cluster-token-file is for plaintext on loopback; use certificates "
        "and --users elsewhere");
  }
  FRESHET_RETURN_IF_ERROR(CheckRange("--max-message-bytes", o.max_message_bytes, 1 << 16, 1 << 30));
  FRESHET_RETURN_IF_ERROR(
      CheckRange("--max-concurrent-streams", o.max_concurrent_streams, 1, 1'000'000));
  return CheckRange("--drain-timeout-ms", absl::ToInt64Milliseconds(o.drain_timeout), 0,
                    24 * 3600 * 1000);
}

bool IsLoopback(const std::string& address) {
  if (IsUnix(address)) return true;
  const std::optional<HostPort> parsed = ParseHostPort(address);
  if (!parsed.has_value()) return false;
  if (parsed->host == "localhost") return true;
  in_addr v4{};
  if (::inet_pton(AF_INET, parsed->host.c_str(), &v4) == 1) return ntohl(v4.s_addr) >> 24 == 127;
  in6_addr v6{};
  return ::inet_pton(AF_INET6, parsed->host.c_str(), &v6) == 1 && IN6_IS_ADDR_LOOPBACK(&v6);
}

bool IsLocalHost(const std::string& host) {
  const std::string lower = absl::AsciiStrToLower(host);
  return !IsUnix(lower) && (IsLoopback(lower) || IsLoopback(lower + ":80"));
}

std::optional<HostPort> ParseHostPort(const std::string& address) {
  const size_t colon = address.rfind(':');
  if (colon == std::string::npos) return std::nullopt;
  HostPort result;
  result.host = address.substr(0, colon);
  const bool bracketed =
      result.host.size() > 2 && result.host.front() == '[' && result.host.back() == ']';
  if (bracketed) result.host = result.host.substr(1, result.host.size() - 2);
  const bool has_colon = result.host.find(':') != std::string::npos;
  if (result.host.empty() || has_colon != bracketed ||
      result.host.find_first_of(" \t\r\n/,[]") != std::string::npos) {
    return std::nullopt;
  }
  const char* begin = address.data() + colon + 1;
  const char* end = address.data() + address.size();
  const auto [rest, error] = std::from_chars(begin, end, result.port);
  if (error != std::errc() || rest != end || result.port < 0 || result.port > 65535) {
    return std::nullopt;
  }
  return result;
}

std::string JoinHostPort(const std::string& host, int port) {
  return host.find(':') == std::string::npos ? StrCat(host, ":", port)
                                             : StrCat("[", host, "]:", port);
}

}  // namespace freshet::runtime
