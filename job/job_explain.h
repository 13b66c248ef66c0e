#ifndef FRESHET_JOB_JOB_EXPLAIN_H_
#define FRESHET_JOB_JOB_EXPLAIN_H_

#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace freshet {

// Describes a key of a job file: the comment in the proto, type, default, range and allowed values.
// For a block, lists its keys, one line each ("" lists the whole file). Any name or index selects
// an entry of a map or list: "reward.components.exact.weight".
// INVALID_ARGUMENT: unknown key; the message suggests the nearest one.
absl::StatusOr<std::string> ExplainKey(std::string_view path);

// A commented, valid job file that trains from scratch, as a starting point for users.
std::string InitJobTemplate();

}  // namespace freshet

#endif  // FRESHET_JOB_JOB_EXPLAIN_H_
