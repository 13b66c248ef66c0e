#include "rollout/openai/body_members.h"

#include <limits>

#include "base/str_cat.h"
#include "base/utf8.h"
#include "rollout/openai/api_error.h"

namespace freshet::openai {
namespace {

constexpr size_t kExcerptBytes = 80;

}  // namespace

const Json* BodyMembers::Find(const std::string& name) {
  known_.insert(name);
  const auto found = object_.find(name);
  return found == object_.end() || found->is_null() ? nullptr : &*found;
}

void BodyMembers::Read(const std::string& name, bool& value) {
  const Json* member = Find(name);
  if (member == nullptr) return;
  if (!member->is_boolean()) return FailValue(name, *member, "true or false");
  value = member->get<bool>();
}

void BodyMembers::Read(const std::string& name, std::string& value) {
  const Json* member = Find(name);
  if (member == nullptr) return;
  if (!member->is_string()) return FailValue(name, *member, "a string");
  value = member->get<std::string>();
}

void BodyMembers::Read(const std::string& name, double& value, double min, double max) {
  const Json* member = Find(name);
  if (member == nullptr) return;
  const double number = member->is_number() ? member->get<double>() : min;
  if (!member->is_number() || !(number >= min && number <= max)) {
    return FailValue(name, *member, StrCat("a number from ", min, " to ", max));
  }
  value = number;
}

std::optional<int64_t> BodyMembers::Int(const std::string& name, int64_t min, int64_t max) {
  const Json* member = Find(name);
  if (member == nullptr) return std::nullopt;
  const bool fits = member->is_number_integer() &&
                    (!member->is_number_unsigned() ||
                     member->get<uint64_t>() <= uint64_t{std::numeric_limits<int64_t>::max()});
  const int64_t number = fits ? member->get<int64_t>() : 0;
  if (!fits || number < min || number > max) {
    FailValue(name, *member, StrCat("an integer from ", min, " to ", max));
    return std::nullopt;
  }
  return number;
}

void BodyMembers::Read(const std::string& name, int32_t& value, int64_t min, int64_t max) {
  if (const auto number = Int(name, min, max)) value = static_cast<int32_t>(*number);
}

void BodyMembers::Read(const std::string& name, std::optional<int32_t>& value, int64_t min,
                       int64_t max) {
  if (const auto number = Int(name, min, max)) value = static_cast<int32_t>(*number);
}

void BodyMembers::Read(const std::string& name, std::optional<uint64_t>& value) {
  const auto number =
      Int(name, std::numeric_limits<int64_t>::min(), std::numeric_limits<int64_t>::max());
  if (number) value = static_cast<uint64_t>(*number);
}

void BodyMembers::Refuse(const std::string& name, const Json& harmless) {
  const Json* member = Find(name);
  if (member != nullptr && *member != harmless) {
    Fail(name, StrCat(Excerpt(*member), " is not supported"));
  }
}

void BodyMembers::RefuseUnknown(const std::set<std::string>& ignored) {
  for (const auto& [name, value] : object_.items()) {
    if (!value.is_null() && !known_.contains(name) && !ignored.contains(name)) {
      return Fail(name.substr(0, kExcerptBytes), "this parameter is not supported");
    }
  }
}

void BodyMembers::Fail(const std::string& name, const std::string& message) {
  if (status_.ok()) status_ = ParameterError(name, message);
}

void BodyMembers::FailValue(const std::string& name, const Json& value, const std::string& want) {
  Fail(name, StrCat("is ", Excerpt(value), ", want ", want));
}

std::string Excerpt(const Json& value) {
  const std::string text = value.dump(-1, ' ', false, Json::error_handler_t::replace);
  if (text.size() <= kExcerptBytes) return text;
  return StrCat(ValidUtf8(text.substr(0, kExcerptBytes)), "...");
}

}  // namespace freshet::openai
