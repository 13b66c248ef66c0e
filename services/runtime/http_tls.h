#ifndef FRESHET_SERVICES_RUNTIME_HTTP_TLS_H_
#define FRESHET_SERVICES_RUNTIME_HTTP_TLS_H_

#include <openssl/ssl.h>

#include <array>
#include <memory>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "services/runtime/endpoint_options.h"
#include "services/runtime/file_stamp.h"

namespace freshet::runtime {

struct FreeSsl {
  void operator()(SSL* session) const { SSL_free(session); }
  void operator()(SSL_CTX* context) const { SSL_CTX_free(context); }
};
using TlsSession = std::unique_ptr<SSL, FreeSsl>;

// Makes the server's side of TLS connections, without asking for client certificates. Certificate
// and key are reread for new connections when they change; if they are unusable, this is logged and
// the last good ones stay in force. Not thread-safe.
class HttpTls {
 public:
  // NOT_FOUND: an unreadable file; INVALID_ARGUMENT: no certificate is named, a file is not PEM, or
  // key and certificate do not match.
  static absl::StatusOr<std::unique_ptr<HttpTls>> Create(TlsFiles files);

  // A session on the connected, non-blocking socket `descriptor`, which must outlive it. Null: none
  // can be made.
  TlsSession Accept(int descriptor);

 private:
  using Context = std::unique_ptr<SSL_CTX, FreeSsl>;
  using Stamps = std::array<FileStamp, 2>;

  explicit HttpTls(TlsFiles files) : files_(std::move(files)) {}
  Stamps LookAtFiles() const;
  absl::StatusOr<Context> Load() const;
  void Refresh();

  const TlsFiles files_;
  Context context_;
  Stamps stamps_;
  absl::Time next_look_;
};

}  // namespace freshet::runtime

#endif  // FRESHET_SERVICES_RUNTIME_HTTP_TLS_H_
