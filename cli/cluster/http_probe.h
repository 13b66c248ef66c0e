#ifndef FRESHET_CLI_CLUSTER_HTTP_PROBE_H_
#define FRESHET_CLI_CLUSTER_HTTP_PROBE_H_

#include <string>

#include "absl/time/time.h"

namespace freshet {

// The status code of GET `path` at a loopback `address` (127.0.0.1:PORT); 0 on timeout or error.
int HttpStatus(const std::string& address, const std::string& path, absl::Duration timeout);

}  // namespace freshet

#endif  // FRESHET_CLI_CLUSTER_HTTP_PROBE_H_
