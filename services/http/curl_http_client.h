#ifndef FRESHET_SERVICES_HTTP_CURL_HTTP_CLIENT_H_
#define FRESHET_SERVICES_HTTP_CURL_HTTP_CLIENT_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/mutex.h"
#include "services/http/http_client.h"

namespace freshet {

struct CurlHttpOptions {
  std::string server;   // "https://HOST:PORT", or "http://" for a test server
  std::string ca_file;  // PEM roots that verify the server
  // File with a bearer token, read for every call because it may be rotated. "": none.
  std::string token_file;
  size_t max_idle = 4;  // connections kept open
};

// HTTP over TLS using libcurl. Follows no redirects and ignores proxy environment variables, so
// that the token goes only to the server. Connections are reused.
class CurlHttpClient final : public HttpClient {
 public:
  // Opens no connection. INVALID_ARGUMENT: malformed server, https without roots, or a token over
  // plaintext.
  static absl::StatusOr<std::unique_ptr<CurlHttpClient>> Create(CurlHttpOptions options);
  ~CurlHttpClient() override;

  absl::StatusOr<HttpReply> Send(const HttpCall& call) override ABSL_LOCKS_EXCLUDED(mu_);

 private:
  struct Handle;
  explicit CurlHttpClient(CurlHttpOptions options);
  std::unique_ptr<Handle> Take() ABSL_LOCKS_EXCLUDED(mu_);
  void GiveBack(std::unique_ptr<Handle> handle) ABSL_LOCKS_EXCLUDED(mu_);

  const CurlHttpOptions options_;
  Mutex mu_;
  std::vector<std::unique_ptr<Handle>> idle_ ABSL_GUARDED_BY(mu_);
};

}  // namespace freshet

#endif  // FRESHET_SERVICES_HTTP_CURL_HTTP_CLIENT_H_
