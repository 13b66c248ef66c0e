#ifndef FRESHET_SERVICES_RUNTIME_HOST_LOOKUP_H_
#define FRESHET_SERVICES_RUNTIME_HOST_LOOKUP_H_

#include <string>

#include "absl/status/statusor.h"

namespace freshet::runtime {

// A numeric address of `host`, from the system's resolver. Blocks as long as that takes.
// UNAVAILABLE: it knows none. Thread-safe.
absl::StatusOr<std::string> LookUpHost(const std::string& host);

}  // namespace freshet::runtime

#endif  // FRESHET_SERVICES_RUNTIME_HOST_LOOKUP_H_
