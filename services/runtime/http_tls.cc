#include "services/runtime/http_tls.h"

#include <openssl/err.h>

#include <utility>

#include "absl/time/clock.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "base/str_cat.h"
#include "services/runtime/tls.h"

namespace freshet::runtime {
namespace {

absl::Status Unusable(const std::string& file) {
  const unsigned long code = ERR_get_error();
  ERR_clear_error();
  const char* reason = code == 0 ? nullptr : ERR_reason_error_string(code);
  return InvalidArgument(file, ": cannot be used for TLS: ", reason == nullptr ? "?" : reason);
}

}  // namespace

absl::StatusOr<std::unique_ptr<HttpTls>> HttpTls::Create(TlsFiles files) {
  if (files.cert.empty()) return InvalidArgument("TLS needs a certificate and its key");
  std::unique_ptr<HttpTls> tls(new HttpTls(std::move(files)));
  tls->stamps_ = tls->LookAtFiles();
  FRESHET_ASSIGN_OR_RETURN(tls->context_, tls->Load());
  tls->next_look_ = absl::Now() + tls->files_.refresh;
  return tls;
}

HttpTls::Stamps HttpTls::LookAtFiles() const { return {StampOf(files_.cert), StampOf(files_.key)}; }

absl::StatusOr<HttpTls::Context> HttpTls::Load() const {
  FRESHET_RETURN_IF_ERROR(CheckTlsFiles(files_));
  Context context(SSL_CTX_new(TLS_server_method()));
  if (context == nullptr) return Unusable(files_.cert);
  SSL_CTX_set_min_proto_version(context.get(), TLS1_2_VERSION);
  SSL_CTX_set_options(context.get(), SSL_OP_NO_RENEGOTIATION);
  SSL_CTX_set_session_cache_mode(context.get(), SSL_SESS_CACHE_OFF);
  // A piece that does not fit into the socket is sent in parts, from wherever it lies then.
  SSL_CTX_set_mode(context.get(), SSL_MODE_ENABLE_PARTIAL_WRITE |
                                      SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
                                      SSL_MODE_RELEASE_BUFFERS);
  if (SSL_CTX_use_certificate_chain_file(context.get(), files_.cert.c_str()) != 1) {
    return Unusable(files_.cert);
  }
  if (SSL_CTX_use_PrivateKey_file(context.get(), files_.key.c_str(), SSL_FILETYPE_PEM) != 1) {
    return Unusable(files_.key);
  }
  return context;
}

void HttpTls::Refresh() {
  const absl::Time now = absl::Now();
  if (now < next_look_) return;
  next_look_ = now + files_.refresh;
  const Stamps stamps = LookAtFiles();
  if (stamps == stamps_) return;
  stamps_ = stamps;
  absl::StatusOr<Context> context = Load();
  if (!context.ok()) {
    FRESHET_LOG(Error) << "event=http_certificate_kept error="
                       << LogQuoted(Message(context.status()));
    return;
  }
  context_ = *std::move(context);
  FRESHET_LOG(Info) << "event=http_certificate_reloaded file=" << files_.cert;
}

TlsSession HttpTls::Accept(int descriptor) {
  Refresh();
  TlsSession session(SSL_new(context_.get()));
  if (session == nullptr || SSL_set_fd(session.get(), descriptor) != 1) return nullptr;
  SSL_set_accept_state(session.get());
  return session;
}

}  // namespace freshet::runtime
