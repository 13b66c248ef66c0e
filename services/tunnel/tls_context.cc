#include "services/tunnel/tls_context.h"

#include <openssl/err.h>
#include <openssl/x509v3.h>

#include <algorithm>
#include <utility>

#include "absl/time/clock.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "base/str_cat.h"
#include "services/runtime/authorization_policy.h"

namespace freshet {
namespace {

std::string OpenSslReason() {
  const unsigned long code = ERR_get_error();  // NOLINT(google-runtime-int): OpenSSL's type
  ERR_clear_error();
  const char* reason = code == 0 ? nullptr : ERR_reason_error_string(code);
  return reason == nullptr ? "cannot be used" : reason;
}

bool IsIpAddress(const std::string& name) {
  ASN1_OCTET_STRING* address = a2i_IPADDRESS(name.c_str());
  const bool parsed = address != nullptr;
  ASN1_OCTET_STRING_free(address);
  ERR_clear_error();
  return parsed;
}

absl::Status ExpectPeer(SSL* ssl, const std::string& name) {
  if (IsIpAddress(name)) {
    if (X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl), name.c_str()) == 1) {
      return absl::OkStatus();
    }
  } else {
    SSL_set_hostflags(ssl, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
    // SSL_set_tlsext_host_name, whose macro casts in the old style; OpenSSL copies the name.
    const bool named = SSL_ctrl(ssl, SSL_CTRL_SET_TLSEXT_HOSTNAME, TLSEXT_NAMETYPE_host_name,
                                const_cast<char*>(name.c_str())) == 1;
    if (named && SSL_set1_host(ssl, name.c_str()) == 1) return absl::OkStatus();
  }
  return InvalidArgument("--tls-peer-name ", name, ": ", OpenSslReason());
}

absl::Status LoadIdentity(SSL_CTX* context, const TunnelTls& tls) {
  if (tls.cert.empty()) return absl::OkStatus();
  if (SSL_CTX_use_certificate_chain_file(context, tls.cert.c_str()) != 1) {
    return InvalidArgument("--tls-cert ", tls.cert, ": ", OpenSslReason());
  }
  if (SSL_CTX_use_PrivateKey_file(context, tls.key.c_str(), SSL_FILETYPE_PEM) != 1) {
    return InvalidArgument("--tls-key ", tls.key, ": ", OpenSslReason());
  }
  if (SSL_CTX_check_private_key(context) != 1) {
    return InvalidArgument("--tls-key ", tls.key, ": is not the key of ", tls.cert);
  }
  return absl::OkStatus();
}

absl::Status LoadRoots(SSL_CTX* context, const TunnelTls& tls) {
  const bool ok = tls.public_roots
                      ? SSL_CTX_set_default_verify_paths(context) == 1
                      : SSL_CTX_load_verify_locations(context, tls.ca.c_str(), nullptr) == 1;
  if (ok) return absl::OkStatus();
  return InvalidArgument("--tls-ca ", tls.ca, ": ", OpenSslReason());
}

std::string TextOf(const ASN1_STRING* text) {
  const auto size = static_cast<size_t>(std::max(ASN1_STRING_length(text), 0));
  const unsigned char* bytes = ASN1_STRING_get0_data(text);
  return std::string(bytes, bytes + size);
}

std::string SubjectOf(X509* cert) {
  const std::unique_ptr<BIO, decltype(&BIO_free_all)> bio(BIO_new(BIO_s_mem()), BIO_free_all);
  if (bio == nullptr ||
      X509_NAME_print_ex(bio.get(), X509_get_subject_name(cert), 0, XN_FLAG_RFC2253) < 0) {
    return "";
  }
  std::string text(4096, '\0');
  const int size = BIO_read(bio.get(), text.data(), static_cast<int>(text.size()));
  text.resize(static_cast<size_t>(std::max(size, 0)));
  return text;
}

}  // namespace

absl::Status ValidateTunnelTls(const TunnelTls& tls) {
  if (tls.cert.empty() != tls.key.empty()) {
    return InvalidArgument("--tls-cert and --tls-key go together: ",
                           tls.cert.empty() ? "--tls-cert" : "--tls-key", " is missing");
  }
  if (tls.ca.empty() != tls.public_roots) {
    return InvalidArgument("give --tls-ca FILE or --tls-public-roots, one of them");
  }
  if (!tls.server) {
    if (!tls.allow.empty()) return InvalidArgument("--tls-allow goes with --tls-listen");
    if (!tls.peer_name.empty()) return absl::OkStatus();
    return InvalidArgument("--tls-peer-name is missing: the name in the server's certificate");
  }
  if (!tls.peer_name.empty()) return InvalidArgument("--tls-peer-name goes with --tls-connect");
  if (tls.public_roots) return InvalidArgument("--tls-listen needs --tls-ca, not public roots");
  if (!tls.cert.empty()) return absl::OkStatus();
  return InvalidArgument("--tls-cert is missing: --tls-listen needs a certificate");
}

std::vector<std::string> PeerNames(SSL* ssl) {
  const std::unique_ptr<X509, decltype(&X509_free)> cert(SSL_get1_peer_certificate(ssl), X509_free);
  if (cert == nullptr) return {};
  std::vector<std::string> uris;
  std::vector<std::string> hosts;
  const std::unique_ptr<GENERAL_NAMES, decltype(&GENERAL_NAMES_free)> names(
      static_cast<GENERAL_NAMES*>(
          X509_get_ext_d2i(cert.get(), NID_subject_alt_name, nullptr, nullptr)),
      GENERAL_NAMES_free);
  const int count = names == nullptr ? 0 : sk_GENERAL_NAME_num(names.get());
  for (int i = 0; i < count; ++i) {
    const GENERAL_NAME* name = sk_GENERAL_NAME_value(names.get(), i);
    if (name->type == GEN_URI) uris.push_back(TextOf(name->d.uniformResourceIdentifier));
    if (name->type == GEN_DNS) hosts.push_back(TextOf(name->d.dNSName));
  }
  if (!uris.empty()) return uris;
  if (!hosts.empty()) return hosts;
  return {SubjectOf(cert.get())};
}

absl::StatusOr<std::unique_ptr<TlsContext>> TlsContext::Create(const TunnelTls& tls) {
  FRESHET_RETURN_IF_ERROR(ValidateTunnelTls(tls));
  std::unique_ptr<TlsContext> context(new TlsContext(tls));
  context->stamps_ = context->Look();
  FRESHET_ASSIGN_OR_RETURN(context->context_, context->Load());
  context->next_look_ = absl::Now() + tls.refresh;
  return context;
}

TlsContext::Stamps TlsContext::Look() const {
  Stamps stamps;
  const std::array<const std::string*, 3> files = {&tls_.cert, &tls_.key, &tls_.ca};
  for (size_t i = 0; i < files.size(); ++i) {
    if (!files[i]->empty()) stamps[i] = runtime::StampOf(*files[i]);
  }
  return stamps;
}

absl::StatusOr<std::shared_ptr<SSL_CTX>> TlsContext::Load() const {
  ERR_clear_error();
  std::shared_ptr<SSL_CTX> context(
      SSL_CTX_new(tls_.server ? TLS_server_method() : TLS_client_method()), SSL_CTX_free);
  if (context == nullptr) return Internal("no TLS context: ", OpenSslReason());
  SSL_CTX_set_min_proto_version(context.get(), TLS1_2_VERSION);
  SSL_CTX_set_mode(context.get(), SSL_MODE_ENABLE_PARTIAL_WRITE |
                                      SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
                                      SSL_MODE_RELEASE_BUFFERS);
  // Connections are few and long: no resumption, which would outlive a change
  // of certificates.
  SSL_CTX_set_session_cache_mode(context.get(), SSL_SESS_CACHE_OFF);
  SSL_CTX_set_options(context.get(), SSL_OP_NO_TICKET | SSL_OP_NO_RENEGOTIATION);
  SSL_CTX_set_num_tickets(context.get(), 0);
  FRESHET_RETURN_IF_ERROR(LoadIdentity(context.get(), tls_));
  FRESHET_RETURN_IF_ERROR(LoadRoots(context.get(), tls_));
  SSL_CTX_set_verify(context.get(),
                     SSL_VERIFY_PEER | (tls_.server ? SSL_VERIFY_FAIL_IF_NO_PEER_CERT : 0),
                     nullptr);
  return context;
}

void TlsContext::Refresh(absl::Time now) {
  if (now < next_look_) return;
  next_look_ = now + tls_.refresh;
  const Stamps stamps = Look();
  if (stamps == stamps_) return;
  stamps_ = stamps;
  absl::StatusOr<std::shared_ptr<SSL_CTX>> context = Load();
  if (!context.ok()) {
    FRESHET_LOG(Error) << "event=tls_files_kept error=" << LogQuoted(Message(context.status()));
    return;
  }
  context_ = *std::move(context);
  FRESHET_LOG(Info) << "event=tls_files_reloaded";
}

absl::StatusOr<SslPtr> TlsContext::NewConnection(int fd, absl::Time now) {
  Refresh(now);
  ERR_clear_error();
  SslPtr ssl(SSL_new(context_.get()));  // keeps the context
  if (ssl == nullptr || SSL_set_fd(ssl.get(), fd) != 1) {
    return Internal("no TLS connection: ", OpenSslReason());
  }
  if (tls_.server) {
    SSL_set_accept_state(ssl.get());
  } else {
    FRESHET_RETURN_IF_ERROR(ExpectPeer(ssl.get(), tls_.peer_name));
    SSL_set_connect_state(ssl.get());
  }
  return ssl;
}

absl::Status TlsContext::CheckPeer(SSL* ssl) const {
  if (!tls_.server || tls_.allow.empty()) return absl::OkStatus();
  const std::vector<std::string> names = PeerNames(ssl);
  for (const std::string& allowed : tls_.allow) {
    const runtime::StringPattern pattern = runtime::ParsePattern(allowed);
    const bool found = std::any_of(names.begin(), names.end(), [&](const std::string& name) {
      return runtime::Matches(pattern, name);
    });
    if (found) return absl::OkStatus();
  }
  return StatusOf(absl::StatusCode::kPermissionDenied, "no --tls-allow for ",
                  names.empty() ? "a peer without a certificate" : names.front());
}

}  // namespace freshet
