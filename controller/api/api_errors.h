#ifndef FRESHET_CONTROLLER_API_API_ERRORS_H_
#define FRESHET_CONTROLLER_API_API_ERRORS_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "controller/cluster/leadership.h"
#include "job/config_error.h"

namespace freshet {

// Returns INVALID_ARGUMENT with one violation per error. The message contains the first few, one
// per line.
absl::Status InvalidJob(const std::vector<ConfigError>& errors);
// Returns INVALID_ARGUMENT with one violation; the message is "FIELD: TEXT".
absl::Status BadField(const std::string& field, const std::string& text);
// Returns UNAVAILABLE, naming the leader if it is known.
absl::Status NotLeading(const Leadership::View& leader);
// Adds error details to `status`: the reason and, for retryable errors, the retry delay. Existing
// details are kept.
absl::Status Explained(const absl::Status& status, const std::string& job);
// Status of a call that the leader handled: Explained, or NotLeading if it was deposed before it
// changed anything (IsDeposed). `leader` is the current view.
absl::Status Led(const absl::Status& status, const std::string& job,
                 const Leadership::View& leader);

}  // namespace freshet

#endif  // FRESHET_CONTROLLER_API_API_ERRORS_H_
