#include "services/runtime/json_keys.h"

#include <algorithm>

#include "base/str_cat.h"

namespace freshet::runtime {

absl::Status CheckKeys(const nlohmann::json& object, const std::string& where,
                       std::initializer_list<const char*> known) {
  if (!object.is_object()) return InvalidArgument(where, ": not an object");
  for (const auto& item : object.items()) {
    const bool found = std::any_of(known.begin(), known.end(),
                                   [&](const char* name) { return item.key() == name; });
    if (!found) return InvalidArgument(where, ": key \"", item.key(), "\" is not supported");
  }
  return absl::OkStatus();
}

}  // namespace freshet::runtime
