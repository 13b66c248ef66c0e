#include "datastore/redis/redis_tls.h"

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstddef>

#include "base/status_macros.h"
#include "base/str_cat.h"

namespace freshet {
namespace {

using ContextPtr = std::unique_ptr<SSL_CTX, decltype(&SSL_CTX_free)>;

absl::Status LoadFiles(SSL_CTX* context, const RedisTlsOptions& options) {
  const bool roots = options.ca.empty()
                         ? SSL_CTX_set_default_verify_paths(context) == 1
                         : SSL_CTX_load_verify_locations(context, options.ca.c_str(), nullptr) == 1;
  if (!roots) return InvalidArgument("redis TLS roots ", options.ca, ": ", TakeSslError());
  if (options.cert.empty()) return absl::OkStatus();
  if (SSL_CTX_use_certificate_chain_file(context, options.cert.c_str()) != 1) {
    return InvalidArgument("redis TLS certificate ", options.cert, ": ", TakeSslError());
  }
  if (SSL_CTX_use_PrivateKey_file(context, options.key.c_str(), SSL_FILETYPE_PEM) != 1) {
    return InvalidArgument("redis TLS key ", options.key, ": ", TakeSslError());
  }
  return absl::OkStatus();
}

absl::StatusOr<ContextPtr> MakeContext(const RedisTlsOptions& options) {
  ERR_clear_error();
  ContextPtr context(SSL_CTX_new(TLS_client_method()), &SSL_CTX_free);
  if (context == nullptr) return Internal("no TLS context: ", TakeSslError());
  SSL_CTX_set_min_proto_version(context.get(), TLS1_2_VERSION);
  SSL_CTX_set_mode(context.get(), SSL_MODE_ENABLE_PARTIAL_WRITE |
                                      SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
                                      SSL_MODE_RELEASE_BUFFERS);
  SSL_CTX_set_session_cache_mode(context.get(), SSL_SESS_CACHE_OFF);
  SSL_CTX_set_options(context.get(), SSL_OP_NO_RENEGOTIATION);
  SSL_CTX_set_verify(context.get(), SSL_VERIFY_PEER, nullptr);
  FRESHET_RETURN_IF_ERROR(LoadFiles(context.get(), options));
  return context;
}

bool ExpectServer(SSL* ssl, const std::string& name) {
  ASN1_OCTET_STRING* const address = a2i_IPADDRESS(name.c_str());
  const bool is_address = address != nullptr;
  ASN1_OCTET_STRING_free(address);
  ERR_clear_error();
  if (is_address) return X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl), name.c_str()) == 1;
  SSL_set_hostflags(ssl, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
  // SSL_set_tlsext_host_name without its old-style cast; OpenSSL copies the name.
  return SSL_ctrl(ssl, SSL_CTRL_SET_TLSEXT_HOSTNAME, TLSEXT_NAMETYPE_host_name,
                  const_cast<char*>(name.c_str())) == 1 &&
         SSL_set1_host(ssl, name.c_str()) == 1;
}

// OpenSSL's own socket BIO writes without MSG_NOSIGNAL: a closed connection would raise SIGPIPE.
int WriteNoSignal(BIO* bio, const char* bytes, int count) {
  BIO_clear_retry_flags(bio);
  int fd = -1;
  BIO_get_fd(bio, &fd);
  const auto sent = static_cast<int>(send(fd, bytes, static_cast<size_t>(count), MSG_NOSIGNAL));
  if (sent < 0 && (errno == EAGAIN || errno == EINTR)) BIO_set_retry_write(bio);
  return sent;
}

const BIO_METHOD* SocketMethod() {
  static const BIO_METHOD* const method = [] {
    BIO_METHOD* const made = BIO_meth_new(BIO_TYPE_SOCKET, "socket without SIGPIPE");
    const BIO_METHOD* const base = BIO_s_socket();
    BIO_meth_set_write(made, &WriteNoSignal);
    BIO_meth_set_read(made, BIO_meth_get_read(base));
    BIO_meth_set_ctrl(made, BIO_meth_get_ctrl(base));
    BIO_meth_set_create(made, BIO_meth_get_create(base));
    BIO_meth_set_destroy(made, BIO_meth_get_destroy(base));
    return made;
  }();
  return method;
}

}  // namespace

void SslFree::operator()(SSL* ssl) const { SSL_free(ssl); }

std::string TakeSslError() {
  const unsigned long code = ERR_get_error();  // NOLINT(google-runtime-int): OpenSSL's type
  ERR_clear_error();
  const char* const reason = code == 0 ? nullptr : ERR_reason_error_string(code);
  return reason == nullptr ? "cannot be used" : reason;
}

absl::Status RedisTlsOptions::Validate() const {
  if (!enabled) {
    if (ca.empty() && cert.empty() && key.empty() && server_name.empty()) return absl::OkStatus();
    return InvalidArgument("redis TLS settings are given, but TLS is off: turn it on");
  }
  if (cert.empty() != key.empty()) {
    return InvalidArgument("redis TLS certificate and key go together: the ",
                           cert.empty() ? "certificate" : "key", " is missing");
  }
  return MakeContext(*this).status();
}

absl::StatusOr<SslPtr> NewRedisTls(const RedisTlsOptions& options, const std::string& host,
                                   int fd) {
  FRESHET_ASSIGN_OR_RETURN(const ContextPtr context, MakeContext(options));
  SslPtr ssl(SSL_new(context.get()));  // holds a reference to the context
  BIO* const bio = BIO_new(SocketMethod());
  if (ssl == nullptr || bio == nullptr) return Internal("no TLS session: ", TakeSslError());
  BIO_set_fd(bio, fd, BIO_NOCLOSE);
  SSL_set_bio(ssl.get(), bio, bio);
  const std::string& name = options.server_name.empty() ? host : options.server_name;
  if (!ExpectServer(ssl.get(), name)) {
    return InvalidArgument("redis TLS server name ", name, ": ", TakeSslError());
  }
  SSL_set_connect_state(ssl.get());
  return ssl;
}

}  // namespace freshet
