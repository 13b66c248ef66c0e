#ifndef FRESHET_SERVICES_HTTP_TOKEN_FILE_H_
#define FRESHET_SERVICES_HTTP_TOKEN_FILE_H_

#include <string>

#include "absl/status/statusor.h"

namespace freshet {

// The token in a file: one line of printable ASCII without spaces, of at most 64 KiB.
// FAILED_PRECONDITION names the file, and does not show what is in it.
absl::StatusOr<std::string> ReadToken(const std::string& file);

}  // namespace freshet

#endif  // FRESHET_SERVICES_HTTP_TOKEN_FILE_H_
