#ifndef FRESHET_SERVICES_RUNTIME_HOST_LOOKUP_H_
#define FRESHET_SERVICES_RUNTIME_HOST_LOOKUP_H_

#include <string>

#include "absl/status/statusor.h"

namespace freshet::runtime {

// A numeric address of `host`: 127.0.0.1 of "localhost", else the first one that the system's
// resolver gives. Blocks as long as that takes.
// UNAVAILABLE: it knows none. Thread-safe.
absl::StatusOr<std::string> LookUpHost(const std::string& host);

}  // namespace freshet::runtime

#endif  // FRESHET_SERVICES_RUNTIME_HOST_LOOKUP_H_
