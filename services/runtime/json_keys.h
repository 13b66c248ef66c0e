#ifndef FRESHET_SERVICES_RUNTIME_JSON_KEYS_H_
#define FRESHET_SERVICES_RUNTIME_JSON_KEYS_H_

#include <initializer_list>
#include <string>

#include "absl/status/status.h"
#include "nlohmann/json.hpp"

namespace freshet::runtime {

// INVALID_ARGUMENT, beginning with `where`, unless `object` is an object whose keys are all in
// `known`.
absl::Status CheckKeys(const nlohmann::json& object, const std::string& where,
                       std::initializer_list<const char*> known);

}  // namespace freshet::runtime

#endif  // FRESHET_SERVICES_RUNTIME_JSON_KEYS_H_
