#include "env_workers/option_reader.h"

#include <algorithm>
#include <optional>

#include "absl/strings/str_join.h"
#include "base/str_cat.h"
#include "env_workers/integer_expression.h"

namespace freshet {
namespace {

std::string Quoted(const std::string& value) {
  constexpr size_t kMost = 40;
  return value.size() <= kMost ? StrCat("'", value, "'")
                               : StrCat("'", value.substr(0, kMost), "...'");
}

}  // namespace

int64_t OptionReader::Int(const std::string& name, int64_t otherwise, int64_t min, int64_t max) {
  const auto found = options_.find(name);
  if (found == options_.end()) return otherwise;
  const std::optional<int64_t> value = ParseInteger(found->second);
  if (value.has_value() && *value >= min && *value <= max) return *value;
  AddError(InvalidArgument("options.", name, ": ", Quoted(found->second), "; give an integer from ",
                           min, " to ", max));
  return otherwise;
}

std::string OptionReader::Choice(const std::string& name, const std::vector<std::string>& allowed) {
  const auto found = options_.find(name);
  if (found == options_.end()) return allowed.front();
  if (std::find(allowed.begin(), allowed.end(), found->second) != allowed.end()) {
    return found->second;
  }
  AddError(InvalidArgument("options.", name, ": ", Quoted(found->second), "; use ",
                           absl::StrJoin(allowed, " or ")));
  return allowed.front();
}

std::string OptionReader::Text(const std::string& name, const std::string& otherwise) const {
  const auto found = options_.find(name);
  return found == options_.end() ? otherwise : found->second;
}

}  // namespace freshet
