#ifndef FRESHET_SERVICES_RUNTIME_HTTP_CLIENT_H_
#define FRESHET_SERVICES_RUNTIME_HTTP_CLIENT_H_

#include <string>

#include "absl/time/time.h"
#include "services/runtime/http_server.h"

namespace freshet::runtime {

// The answer to GET `path` at `address`, HOST:PORT with a numeric host or "localhost"; without its
// additional headers. Status 0: no complete answer within `timeout`, or one of more than 8 MiB.
// Blocks. Thread-safe.
HttpResponse HttpGet(const std::string& address, const std::string& path, absl::Duration timeout);

}  // namespace freshet::runtime

#endif  // FRESHET_SERVICES_RUNTIME_HTTP_CLIENT_H_
