#ifndef FRESHET_CONTROLLER_API_API_ERRORS_H_
#define FRESHET_CONTROLLER_API_API_ERRORS_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "controller/cluster/leadership.h"
#include "job/config_error.h"

namespace freshet {

// INVALID_ARGUMENT with one violation per error; the message has the first few, one a line.
absl::Status InvalidJob(const std::vector<ConfigError>& errors);
// INVALID_ARGUMENT with one violation; the message is "FIELD: TEXT".
absl::Status BadField(const std::string& field, const std::string& text);
// UNAVAILABLE that names the leader, where it is known.
absl::Status NotLeading(const Leadership::View& leader);
// `status` with the details that help a caller: the reason, and how long to wait where trying again
// may help. Details that it has stay.
absl::Status Explained(const absl::Status& status, const std::string& job);
// What a leader's call came to: Explained, but NotLeading where it was deposed before it did
// anything (IsDeposed). `leader`: as of now.
absl::Status Led(const absl::Status& status, const std::string& job,
                 const Leadership::View& leader);

}  // namespace freshet

#endif  // FRESHET_CONTROLLER_API_API_ERRORS_H_
