#include "base/json_document.h"

#include <exception>
#include <utility>

#include "absl/strings/str_join.h"
#include "base/str_cat.h"

namespace freshet {
namespace {

using Json = nlohmann::json;

constexpr size_t kMaxExcerptBytes = 80;
constexpr size_t kMaxReasonBytes = 160;

// Printable ASCII, one line, at most `max_bytes`.
std::string OneLine(std::string_view text, size_t max_bytes) {
  std::string line;
  for (const char c : text.substr(0, max_bytes)) {
    line.push_back(c >= 0x20 && c < 0x7F ? c : '?');
  }
  if (text.size() > max_bytes) line += "...";
  return line;
}

// Builds the document from parser events. Stops at the first exceeded limit.
class DocumentBuilder final : public nlohmann::json_sax<Json> {
 public:
  explicit DocumentBuilder(const JsonLimits& limits) : limits_(limits) {}

  bool null() override { return Add(nullptr); }
  bool boolean(bool value) override { return Add(value); }
  bool number_integer(number_integer_t value) override { return Add(value); }
  bool number_unsigned(number_unsigned_t value) override { return Add(value); }
  bool number_float(number_float_t value, const string_t& /*text*/) override { return Add(value); }
  bool string(string_t& value) override { return Add(std::move(value)); }
  bool binary(binary_t& /*value*/) override { return Fail("holds binary data"); }
  bool start_object(std::size_t /*elements*/) override { return Open(Json::object()); }
  bool start_array(std::size_t /*elements*/) override { return Open(Json::array()); }
  bool end_object() override { return Close(); }
  bool end_array() override { return Close(); }

  bool key(string_t& name) override {
    auto [it, inserted] = stack_.back()->emplace(name, nullptr);
    if (!inserted) {
      return Fail(StrCat("the name '", OneLine(name, kMaxExcerptBytes), "' occurs twice"));
    }
    member_ = &*it;
    return true;
  }

  bool parse_error(std::size_t /*position*/, const std::string& /*last_token*/,
                   const Json::exception& error) override {
    // nlohmann::json prefixes messages with its own name in brackets.
    std::string_view text = error.what();
    if (const size_t at = text.find("] "); at != std::string_view::npos) text.remove_prefix(at + 2);
    return Fail(OneLine(text, kMaxReasonBytes));
  }

  Json TakeRoot() { return std::move(root_); }
  const std::string& reason() const { return reason_; }

 private:
  bool Fail(std::string reason) {
    if (reason_.empty()) reason_ = std::move(reason);
    return false;
  }

  // Adds a value at the current position. Returns null if a limit is exceeded.
  Json* Place(Json value) {
    if (++num_values_ > limits_.max_values) {
      Fail(StrCat("holds more than ", limits_.max_values, " values"));
      return nullptr;
    }
    if (stack_.empty()) {
      root_ = std::move(value);
      return &root_;
    }
    if (stack_.back()->is_array()) {
      stack_.back()->push_back(std::move(value));
      return &stack_.back()->back();
    }
    *member_ = std::move(value);
    return member_;
  }

  bool Add(Json value) { return Place(std::move(value)) != nullptr; }

  bool Open(Json container) {
    if (stack_.size() >= static_cast<size_t>(limits_.max_depth)) {
      return Fail(StrCat("is nested deeper than ", limits_.max_depth, " levels"));
    }
    Json* placed = Place(std::move(container));
    if (placed == nullptr) return false;
    stack_.push_back(placed);
    return true;
  }

  bool Close() {
    stack_.pop_back();
    return true;
  }

  const JsonLimits limits_;
  Json root_;
  // Open containers. Pointers stay valid because only the innermost container grows.
  std::vector<Json*> stack_;
  Json* member_ = nullptr;
  uint64_t num_values_ = 0;
  std::string reason_;
};

const Json& NullJson() {
  static const Json value;
  return value;
}

}  // namespace

absl::StatusOr<Json> ParseJson(std::string_view text, const std::string& source,
                               const JsonLimits& limits) {
  if (text.empty()) return InvalidArgument(source, ": the file is empty, want JSON");
  DocumentBuilder builder(limits);
  try {
    if (Json::sax_parse(text.begin(), text.end(), &builder)) return builder.TakeRoot();
  } catch (const std::exception& error) {
    return InvalidArgument(source, ": ", OneLine(error.what(), kMaxReasonBytes));
  }
  return InvalidArgument(source, ": ", builder.reason());
}

size_t LargestObject(const nlohmann::json& json) {
  size_t largest = json.is_object() ? json.size() : 0;
  if (json.is_structured()) {
    for (const nlohmann::json& item : json) largest = std::max(largest, LargestObject(item));
  }
  return largest;
}

absl::StatusOr<nlohmann::ordered_json> ParseOrderedJson(std::string_view text,
                                                        const std::string& source) {
  const absl::StatusOr<nlohmann::json> parsed = ParseJson(text, source);
  if (!parsed.ok()) return parsed.status();
  if (LargestObject(*parsed) > kMaxOrderedMembers) {
    return InvalidArgument(source, ": an object has more than ", kMaxOrderedMembers, " members");
  }
  return nlohmann::ordered_json::parse(text.begin(), text.end());
}

bool NestsDeeper(std::string_view text, int max_depth) {
  int depth = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      if (c == '"') in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '{' || c == '[') {
      if (++depth > max_depth) return true;
    } else if (c == '}' || c == ']') {
      --depth;
    }
  }
  return false;
}

JsonFields::JsonFields(const Json& object, std::string source, std::vector<std::string>& errors)
    : object_(object), source_(std::move(source)), errors_(errors) {
  if (!object_.is_object()) AddError(StrCat("is ", JsonExcerpt(object_), ", want an object"));
}

const Json& JsonFields::Get(const char* name) const {
  if (!object_.is_object()) return NullJson();
  const auto it = object_.find(name);
  return it == object_.end() ? NullJson() : *it;
}

bool JsonFields::Contains(const char* name) const {
  return object_.is_object() && object_.contains(name);
}

bool JsonFields::Has(const char* name) const { return !Get(name).is_null(); }

int64_t JsonFields::Int(const char* name, int64_t fallback, int64_t min, int64_t max) {
  const Json& value = Get(name);
  if (value.is_null()) return fallback;
  const bool too_large = value.is_number_unsigned() &&
                         value.get<uint64_t>() > static_cast<uint64_t>(max < 0 ? 0 : max);
  if (value.is_number_integer() && !too_large) {
    const auto number = value.get<int64_t>();
    if (number >= min && number <= max) return number;
  }
  AddError(StrCat(name, " is ", JsonExcerpt(value), ", want an integer from ", min, " to ", max));
  return fallback;
}

int64_t JsonFields::RequiredInt(const char* name, int64_t min, int64_t max) {
  if (!Has(name)) AddError(StrCat(name, " is missing, want an integer from ", min, " to ", max));
  return Int(name, min, min, max);
}

double JsonFields::Number(const char* name, double fallback) {
  const Json& value = Get(name);
  if (value.is_null()) return fallback;
  if (value.is_number()) return value.get<double>();
  AddError(StrCat(name, " is ", JsonExcerpt(value), ", want a number"));
  return fallback;
}

bool JsonFields::Bool(const char* name, bool fallback) {
  const Json& value = Get(name);
  if (value.is_null()) return fallback;
  if (value.is_boolean()) return value.get<bool>();
  AddError(StrCat(name, " is ", JsonExcerpt(value), ", want true or false"));
  return fallback;
}

std::string JsonFields::String(const char* name, const std::string& fallback) {
  const Json& value = Get(name);
  if (value.is_null()) return fallback;
  if (value.is_string()) return value.get<std::string>();
  AddError(StrCat(name, " is ", JsonExcerpt(value), ", want a string"));
  return fallback;
}

void JsonFields::AddError(const std::string& message) {
  errors_.push_back(StrCat(source_, ": ", message));
}

std::string JsonExcerpt(const Json& value) {
  if (value.is_object()) return "an object";
  if (value.is_array()) return "an array";
  return OneLine(value.dump(-1, ' ', true, Json::error_handler_t::replace), kMaxExcerptBytes);
}

absl::Status ErrorsToStatus(const std::vector<std::string>& errors) {
  return errors.empty() ? absl::OkStatus() : InvalidArgument(absl::StrJoin(errors, "\n"));
}

}  // namespace freshet
