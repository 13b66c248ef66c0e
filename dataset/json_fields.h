#ifndef FRESHET_DATASET_JSON_FIELDS_H_
#define FRESHET_DATASET_JSON_FIELDS_H_

#include <map>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace freshet {

// The members of a JSON object (RFC 8259) as text: strings as they are, numbers, booleans, arrays
// and objects as compact JSON. A member that is null counts as absent; of a repeated name the last
// one stays.
//
// INVALID_ARGUMENT: not a JSON object, invalid UTF-8, a NUL byte, or nested deeper than 32 levels.
// Memory is linear in the size of `text`, which the caller bounds.
absl::StatusOr<std::map<std::string, std::string>> ParseJsonFields(std::string_view text);

}  // namespace freshet

#endif  // FRESHET_DATASET_JSON_FIELDS_H_
