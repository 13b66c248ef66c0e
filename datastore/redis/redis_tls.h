#ifndef FRESHET_DATASTORE_REDIS_REDIS_TLS_H_
#define FRESHET_DATASTORE_REDIS_REDIS_TLS_H_

#include <openssl/types.h>

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace freshet {

// TLS to a Redis server. Files are PEM, and are read for each new connection, so that renewed ones
// are used without a restart.
struct RedisTlsOptions {
  bool enabled = false;
  std::string ca;           // roots that the server is checked against; "": the system's roots
  std::string cert, key;    // client certificate chain, leaf first, and its key; both or neither
  std::string server_name;  // DNS name or IP address in the server's certificate; "": the host

  // INVALID_ARGUMENT naming the setting; a file that cannot be used is named too.
  absl::Status Validate() const;
};

struct SslFree {
  void operator()(SSL* ssl) const;
};
using SslPtr = std::unique_ptr<SSL, SslFree>;

// A client's TLS session over the socket `fd`, which it does not own, before its handshake.
// TLS 1.2 or newer; the certificate must be valid for options.server_name, or `host` without one.
// INVALID_ARGUMENT naming the file.
absl::StatusOr<SslPtr> NewRedisTls(const RedisTlsOptions& options, const std::string& host, int fd);

// The reason of OpenSSL's last error on this thread, which is cleared.
std::string TakeSslError();

}  // namespace freshet

#endif  // FRESHET_DATASTORE_REDIS_REDIS_TLS_H_
