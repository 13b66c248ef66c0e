#include "job/proto_json.h"

#include <cctype>
#include <cmath>
#include <cstddef>
#include <map>
#include <string_view>
#include <utility>

#include "absl/time/time.h"
#include "base/proto_time.h"
#include "base/str_cat.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/timestamp.pb.h"
#include "job/job_schema.h"
#include "job/job_yaml.h"
#include "job/scalar_value.h"

namespace freshet {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::EnumValueDescriptor;
using google::protobuf::FieldDescriptor;
using ProtoMessage = google::protobuf::Message;
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
  return name.starts_with(prefix) ? name.substr(prefix.size()) : name;
}

Json TimestampToJson(const google::protobuf::Timestamp& time) {
  if (time.seconds() == 0 && time.nanos() == 0) return nullptr;
  return absl::FormatTime("%Y-%m-%dT%H:%M:%E3SZ", FromTimestamp(time), absl::UTCTimeZone());
}

// One value of a field; `index` is -1 for a field that is not repeated.
Json ValueToJson(const ProtoMessage& message, const FieldDescriptor& field, int index) {
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

Json MapToJson(const ProtoMessage& message, const FieldDescriptor& field) {
  const FieldDescriptor& key = *field.message_type()->map_key();
  const FieldDescriptor& value = *field.message_type()->map_value();
  std::map<std::string, Json> sorted;
  const Reflection& r = *message.GetReflection();
  for (int i = 0; i < r.FieldSize(message, &field); ++i) {
    const ProtoMessage& entry = r.GetRepeatedMessage(message, &field, i);
    const Json name = ValueToJson(entry, key, -1);
    sorted[name.is_string() ? name.get<std::string>() : name.dump()] =
        ValueToJson(entry, value, -1);
  }
  Json object = Json::object();
  for (auto& [name, item] : sorted) object[name] = std::move(item);
  return object;
}

Json FieldToJson(const ProtoMessage& message, const FieldDescriptor& field) {
  if (field.is_map()) return MapToJson(message, field);
  if (!field.is_repeated()) return ValueToJson(message, field, -1);
  Json list = Json::array();
  const int size = message.GetReflection()->FieldSize(message, &field);
  for (int i = 0; i < size; ++i) list.push_back(ValueToJson(message, field, i));
  return list;
}

std::string Scalar(const Json& value) {
  if (value.is_string()) return QuoteText(value.get<std::string>());
  if (value.is_number_float() && std::isfinite(value.get<double>())) {
    return FormatDouble(value.get<double>());
  }
  return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

void AppendYaml(const Json& value, size_t indent, std::string& text) {
  const std::string margin(indent, ' ');
  if (!value.is_structured()) text += margin + Scalar(value) + "\n";
  if (value.is_object()) {
    for (const auto& [key, item] : value.items()) {
      const bool nested = item.is_structured() && !item.empty();
      text += StrCat(margin, QuoteText(key), ":", nested ? "" : " " + Scalar(item), "\n");
      if (nested) AppendYaml(item, indent + 2, text);
    }
  } else if (value.is_array()) {
    for (const Json& item : value) {
      const size_t begin = text.size();
      if (item.is_structured() && !item.empty()) {
        AppendYaml(item, indent + 2, text);
      } else {
        text += StrCat(margin, "  ", Scalar(item), "\n");
      }
      text[begin + indent] = '-';
    }
  }
}

}  // namespace

Json ProtoToJson(const ProtoMessage& message) {
  const Descriptor& type = *message.GetDescriptor();
  if (type.full_name() == "google.protobuf.Timestamp") {
    return TimestampToJson(static_cast<const google::protobuf::Timestamp&>(message));
  }
  if (const FieldDescriptor* map = InlineMap(type)) return FieldToJson(message, *map);
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
    if (name.ends_with("_json")) {
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

Json ProtoToJson(const ProtoMessage& message, std::initializer_list<const char*> fields) {
  Json object = Json::object();
  for (const char* name : fields) {
    const FieldDescriptor& field = *message.GetDescriptor()->FindFieldByName(name);
    const bool absent = field.has_presence() && !message.GetReflection()->HasField(message, &field);
    object[name] = absent ? Json(nullptr) : FieldToJson(message, field);
  }
  return object;
}

std::string JsonToYaml(const Json& value) {
  std::string text;
  if (value.is_structured() && value.empty()) return Scalar(value) + "\n";
  AppendYaml(value, 0, text);
  return text;
}

std::string WriteJobYaml(const JobSpec& spec) {
  const Json json = ProtoToJson(spec);
  return json.empty() ? "" : JsonToYaml(json);
}

}  // namespace freshet
