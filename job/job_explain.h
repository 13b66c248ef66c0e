#ifndef FRESHET_JOB_JOB_EXPLAIN_H_
#define FRESHET_JOB_JOB_EXPLAIN_H_

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace freshet {

// What a key of a job file means: its comment in the proto, type, default, range and allowed
// values; for a block, its keys with a line each ("" lists the keys of the whole file). Entries of
// maps and lists take any name or index: "reward.components.exact.weight".
// Returns INVALID_ARGUMENT for an unknown key; the message names the nearest one.
absl::StatusOr<std::string> ExplainKey(std::string_view path);

// Every key that takes a value, in the order of the file; entries are written NAME and N.
std::vector<std::string> ListKeys();

// A commented job file that trains from scratch, for a user to edit. It is valid as it stands.
std::string InitJobTemplate();

}  // namespace freshet

#endif  // FRESHET_JOB_JOB_EXPLAIN_H_
