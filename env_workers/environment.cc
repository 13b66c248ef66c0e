#include "env_workers/environment.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "base/str_cat.h"

namespace freshet {
namespace {

constexpr size_t kMostQuoted = 64;  // maximum bytes of an external name quoted in a message

}  // namespace

absl::Status EnvironmentRegistry::Add(EnvironmentType type) {
  if (type.name.empty() || !type.make) {
    return InvalidArgument("environment '", type.name, "' has no name or no factory");
  }
  const std::string name = type.name;
  if (!types_.emplace(name, std::move(type)).second) {
    return StatusOf(absl::StatusCode::kAlreadyExists, "environment '", name, "' exists already");
  }
  return absl::OkStatus();
}

absl::StatusOr<const EnvironmentType*> EnvironmentRegistry::Find(const std::string& name) const {
  const auto found = types_.find(name);
  if (found != types_.end()) return &found->second;
  std::vector<std::string> known;
  for (const auto& [key, type] : types_) known.push_back(key);
  return InvalidArgument("environment '", name.substr(0, kMostQuoted), "' is unknown; use ",
                         absl::StrJoin(known, ", "));
}

absl::StatusOr<std::unique_ptr<Environment>> EnvironmentRegistry::Make(
    const std::string& name) const {
  FRESHET_ASSIGN_OR_RETURN(const EnvironmentType* type, Find(name));
  return type->make();
}

absl::Status EnvironmentRegistry::CheckOptions(const std::string& name,
                                               const EnvironmentOptions& options) const {
  FRESHET_ASSIGN_OR_RETURN(const EnvironmentType* type, Find(name));
  for (const auto& [option, value] : options) {
    if (std::find(type->options.begin(), type->options.end(), option) == type->options.end()) {
      return InvalidArgument("options.", option.substr(0, kMostQuoted), ": ", name,
                             " has no such option; use ", absl::StrJoin(type->options, ", "));
    }
  }
  EnvironmentOptions all = options;
  all.insert(type->example_row.begin(), type->example_row.end());
  return type->make()->Reset(0, all).status();
}

}  // namespace freshet
