#include "cli/format/proto_json.h"

#include <cctype>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string_view>

#include "absl/time/time.h"
#include "freshet/job/v1/key_options.pb.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/timestamp.pb.h"

namespace freshet {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::EnumValueDescriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;
using Json = nlohmann::ordered_json;

// "JOB_STATE_RUNNING" of enum JobState -> "RUNNING".
std::string ShortName(const EnumValueDescriptor& value) {
  std::string prefix;
  for (const char c : value.type()->name()) {
    if (std::isupper(static_cast<unsigned char>(c)) != 0 && !prefix.empty()) prefix += '_';
    prefix += static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  }
  prefix += '_';
  const std::string& name = value.name();
  return name.rfind(prefix, 0) == 0 ? name.substr(prefix.size()) : name;
}

Json TimestampToJson(const google::protobuf::Timestamp& time) {
  if (time.seconds() == 0 && time.nanos() == 0) return nullptr;
  return absl::FormatTime("%Y-%m-%dT%H:%M:%E3SZ",
                          absl::FromUnixSeconds(time.seconds()) + absl::Nanoseconds(time.nanos()),
                          absl::UTCTimeZone());
}

bool IsInlineMap(const Descriptor& type) {
  return type.field_count() == 1 && type.field(0)->is_map() &&
         type.field(0)->options().HasExtension(freshet::job::v1::key) &&
         type.field(0)->options().GetExtension(freshet::job::v1::key).inline_map();
}

// One value of a field; `index` is -1 for a field that is not repeated.
Json ValueToJson(const Message& message, const FieldDescriptor& field, int index) {
  const Reflection& r = *message.GetReflection();
  const bool one = index < 0;
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      return one ? r.GetInt32(message, &field) : r.GetRepeatedInt32(message, &field, index);
    case FieldDescriptor::CPPTYPE_INT64:
      return one ? r.GetInt64(message, &field) : r.GetRepeatedInt64(message, &field, index);
    case FieldDescriptor::CPPTYPE_UINT32:
      return one ? r.GetUInt32(message, &field) : r.GetRepeatedUInt32(message, &field, index);
    case FieldDescriptor::CPPTYPE_UINT64:
      return one ? r.GetUInt64(message, &field) : r.GetRepeatedUInt64(message, &field, index);
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return one ? r.GetDouble(message, &field) : r.GetRepeatedDouble(message, &field, index);
    case FieldDescriptor::CPPTYPE_FLOAT:
      return one ? r.GetFloat(message, &field) : r.GetRepeatedFloat(message, &field, index);
    case FieldDescriptor::CPPTYPE_BOOL:
      return one ? r.GetBool(message, &field) : r.GetRepeatedBool(message, &field, index);
    case FieldDescriptor::CPPTYPE_ENUM:
      return ShortName(one ? *r.GetEnum(message, &field)
                           : *r.GetRepeatedEnum(message, &field, index));
    case FieldDescriptor::CPPTYPE_STRING:
      return one ? r.GetString(message, &field) : r.GetRepeatedString(message, &field, index);
    case FieldDescriptor::CPPTYPE_MESSAGE:
      return ProtoToJson(one ? r.GetMessage(message, &field)
                             : r.GetRepeatedMessage(message, &field, index));
  }
  return nullptr;
}

Json MapToJson(const Message& message, const FieldDescriptor& field) {
  const FieldDescriptor& key = *field.message_type()->map_key();
  const FieldDescriptor& value = *field.message_type()->map_value();
  std::map<std::string, Json> sorted;
  const Reflection& r = *message.GetReflection();
  for (int i = 0; i < r.FieldSize(message, &field); ++i) {
    const Message& entry = r.GetRepeatedMessage(message, &field, i);
    const Json name = ValueToJson(entry, key, -1);
    sorted[name.is_string() ? name.get<std::string>() : name.dump()] =
        ValueToJson(entry, value, -1);
  }
  Json object = Json::object();
  for (auto& [name, item] : sorted) object[name] = std::move(item);
  return object;
}

Json FieldToJson(const Message& message, const FieldDescriptor& field) {
  if (field.is_map()) return MapToJson(message, field);
  if (!field.is_repeated()) return ValueToJson(message, field, -1);
  Json list = Json::array();
  const int size = message.GetReflection()->FieldSize(message, &field);
  for (int i = 0; i < size; ++i) list.push_back(ValueToJson(message, field, i));
  return list;
}

bool EndsWith(std::string_view text, std::string_view tail) {
  return text.size() >= tail.size() && text.substr(text.size() - tail.size()) == tail;
}

// Whether YAML reads the unquoted text back unchanged.
bool IsPlain(const std::string& text) {
  if (text.empty() || text.size() > 200) return false;
  static constexpr std::string_view kWords[] = {"true", "false", "null", "yes", "no",
                                                "on",   "off",   "~",    "y",   "n"};
  std::string lower;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (std::isalnum(byte) == 0 && c != '_' && c != '-' && c != '.' && c != '/') return false;
    lower += static_cast<char>(std::tolower(byte));
  }
  for (const std::string_view word : kWords) {
    if (lower == word) return false;
  }
  // Texts that start like a number are quoted.
  return std::isalpha(static_cast<unsigned char>(text.front())) != 0 || text.front() == '/' ||
         text.front() == '_';
}

// JSON strings are valid YAML double-quoted scalars.
std::string Scalar(const Json& value) {
  if (value.is_string() && IsPlain(value.get<std::string>())) return value.get<std::string>();
  return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

void AppendYaml(const Json& value, size_t indent, std::string& text) {
  const std::string margin(indent, ' ');
  const auto add = [&](const std::string& head, const Json& item) {
    text += margin + head;
    if (!item.is_structured() || item.empty()) {
      text += (head.back() == ' ' ? "" : " ") + Scalar(item) + "\n";
      return;
    }
    text += "\n";
    AppendYaml(item, indent + 2, text);
  };
  if (value.is_object()) {
    for (const auto& [key, item] : value.items()) add(Scalar(key) + ":", item);
  } else if (value.is_array()) {
    for (const Json& item : value) add("-", item);
  } else {
    text += margin + Scalar(value) + "\n";
  }
}

}  // namespace

Json ProtoToJson(const Message& message) {
  const Descriptor& type = *message.GetDescriptor();
  if (type.full_name() == "google.protobuf.Timestamp") {
    return TimestampToJson(static_cast<const google::protobuf::Timestamp&>(message));
  }
  if (IsInlineMap(type)) return FieldToJson(message, *type.field(0));
  Json object = Json::object();
  const Reflection& r = *message.GetReflection();
  for (int i = 0; i < type.field_count(); ++i) {
    const FieldDescriptor& field = *type.field(i);
    if (field.has_presence() && !r.HasField(message, &field)) continue;
    if (field.is_repeated() && r.FieldSize(message, &field) == 0 &&
        type.file()->name() == "freshet/job/v1/job_spec.proto") {
      continue;  // a key that is absent in the job file
    }
    std::string name = field.name();
    Json value = FieldToJson(message, field);
    if (EndsWith(name, "_json")) {
      Json parsed = value.is_string()
                        ? Json::parse(value.get<std::string>(), nullptr, /*allow_exceptions=*/false)
                        : Json(Json::value_t::discarded);
      if (value.is_array()) {
        parsed = Json::array();
        for (const Json& item : value) {
          Json element = Json::parse(item.get<std::string>(), nullptr, false);
          parsed.push_back(element.is_discarded() ? item : std::move(element));
        }
      }
      if (!parsed.is_discarded()) {
        name.resize(name.size() - std::string_view("_json").size());
        value = std::move(parsed);
      }
    }
    object[name] = std::move(value);
  }
  return object;
}

std::string JsonToYaml(const Json& value) {
  std::string text;
  if (value.is_structured() && value.empty()) return Scalar(value) + "\n";
  AppendYaml(value, 0, text);
  return text;
}

}  // namespace freshet
