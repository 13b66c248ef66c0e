#include "dataset/json_fields.h"

#include <cstddef>

#include "base/json_document.h"
#include "base/str_cat.h"
#include "nlohmann/json.hpp"

namespace freshet {
namespace {

constexpr int kMaxDepth = 32;
template <typename Json>
std::map<std::string, std::string> FieldsOf(const Json& json) {
  std::map<std::string, std::string> fields;
  for (const auto& [name, value] : json.items()) {
    if (value.is_null()) continue;
    fields[name] = value.is_string() ? value.template get<std::string>() : value.dump();
  }
  return fields;
}

}  // namespace

absl::StatusOr<std::map<std::string, std::string>> ParseJsonFields(std::string_view text) {
  // The parser treats a NUL byte as the end of input.
  const size_t nul = text.find('\0');
  if (nul != std::string_view::npos) return InvalidArgument("NUL byte at byte ", nul + 1);
  if (NestsDeeper(text, kMaxDepth)) {
    return InvalidArgument("JSON nested deeper than ", kMaxDepth, " levels; flatten the row");
  }
  nlohmann::json json;
  try {
    json = nlohmann::json::parse(text.begin(), text.end());
  } catch (const nlohmann::json::parse_error& error) {
    return InvalidArgument("not valid JSON or UTF-8 at byte ", error.byte);
  } catch (const nlohmann::json::exception& error) {
    return InvalidArgument("not valid JSON: ", error.what());
  }
  if (!json.is_object()) {
    return InvalidArgument("a JSON ", json.type_name(),
                           " where an object is wanted, as {\"question\": "
                           "\"...\", \"answer\": \"...\"}");
  }
  if (LargestObject(json) > kMaxOrderedMembers) return FieldsOf(json);
  return FieldsOf(nlohmann::ordered_json::parse(text.begin(), text.end()));
}

}  // namespace freshet
