#ifndef FRESHET_DATASET_JSON_FIELDS_H_
#define FRESHET_DATASET_JSON_FIELDS_H_

#include <map>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace freshet {

// Members of a JSON object (RFC 8259) as text: strings unescaped; numbers, booleans, arrays and
// objects as compact JSON, in the order of the text unless an object has more than 1,024 members.
// Null members count as absent. The last of duplicate names wins.
//
// INVALID_ARGUMENT: not a JSON object, invalid UTF-8, a NUL byte, or more than 32 nesting levels.
// Memory is linear in the size of `text`; the caller must bound it.
absl::StatusOr<std::map<std::string, std::string>> ParseJsonFields(std::string_view text);

}  // namespace freshet

#endif  // FRESHET_DATASET_JSON_FIELDS_H_
