#include "job/job_schema.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/str_cat.h"
#include "freshet/job/v1/key_options.pb.h"
#include "job/config_error.h"

namespace freshet {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using ProtoMessage = google::protobuf::Message;

// The value field of a map, otherwise the field itself.
const FieldDescriptor& ValueField(const FieldDescriptor& field) {
  return field.is_map() ? *field.message_type()->map_value() : field;
}

void AppendKeys(const Descriptor& block, const std::string& prefix,
                std::vector<std::string>& keys) {
  for (int i = 0; i < block.field_count(); ++i) {
    const FieldDescriptor& field = *block.field(i);
    std::string path = prefix + field.name();
    if (field.is_map()) {
      path += ".NAME";
    } else if (field.is_repeated()) {
      path += ".N";
    }
    const FieldDescriptor& value = ValueField(field);
    if (value.cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE) {
      keys.push_back(path);
    } else if (InlineMap(*value.message_type()) != nullptr) {
      keys.push_back(path + ".NAME");
    } else {
      AppendKeys(*value.message_type(), path + ".", keys);
    }
  }
}

}  // namespace

const job::v1::KeyOptions& OptionsOf(const FieldDescriptor& field) {
  return field.options().GetExtension(job::v1::key);
}

std::vector<std::string> SplitList(std::string_view list, char separator) {
  if (list.empty()) return {};
  return absl::StrSplit(absl::string_view(list.data(), list.size()), separator);
}

std::vector<std::string> KeyNames(const Descriptor& block) {
  std::vector<std::string> names;
  for (int i = 0; i < block.field_count(); ++i) {
    names.push_back(block.field(i)->name());
  }
  return names;
}

std::optional<KeyCondition> ConditionOf(const FieldDescriptor& field) {
  const std::string& when = OptionsOf(field).when();
  const size_t equals = when.find('=');
  if (equals == std::string::npos) {
    return std::nullopt;
  }
  return KeyCondition{field.containing_type()->FindFieldByName(when.substr(0, equals)),
                      SplitList(std::string_view(when).substr(equals + 1))};
}

bool Applies(const ProtoMessage& block, const FieldDescriptor& field) {
  const std::optional<KeyCondition> condition = ConditionOf(field);
  if (!condition) {
    return true;
  }
  const std::string value = block.GetReflection()->GetString(block, condition->sibling);
  return std::find(condition->values.begin(), condition->values.end(), value) !=
         condition->values.end();
}

const FieldDescriptor* InlineMap(const Descriptor& message) {
  return message.field_count() == 1 && OptionsOf(*message.field(0)).inline_map() ? message.field(0)
                                                                                 : nullptr;
}

const Descriptor* JobKey::Block() const {
  if (field->is_repeated() && !entry) {
    return nullptr;
  }
  const FieldDescriptor& value = ValueField(*field);
  return value.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE &&
                 InlineMap(*value.message_type()) == nullptr
             ? value.message_type()
             : nullptr;
}

bool JobKey::IsScalar() const {
  return (!field->is_repeated() || entry) && ScalarType() != FieldDescriptor::CPPTYPE_MESSAGE;
}

FieldDescriptor::CppType JobKey::ScalarType() const { return ValueField(*field).cpp_type(); }

JobKeyLookup FindJobKey(std::string_view path) {
  JobKeyLookup lookup;
  lookup.parent = JobSpec::descriptor();
  std::optional<JobKey> key;
  std::string so_far;
  for (const std::string& part : SplitList(path, '.')) {
    so_far += so_far.empty() ? part : "." + part;
    lookup.unknown_path = so_far;
    if (key && key->field->is_repeated() && !key->entry) {  // an entry of a map or list
      if (part.empty()) {
        lookup.parent = nullptr;
        return lookup;
      }
      key->entry = true;
    } else if (key && key->entry && !key->IsScalar() && key->Block() == nullptr) {
      key = JobKey{InlineMap(*ValueField(*key->field).message_type()), true};
    } else {
      lookup.parent = key ? key->Block() : JobSpec::descriptor();
      const FieldDescriptor* field =
          lookup.parent == nullptr ? nullptr : lookup.parent->FindFieldByName(part);
      if (field == nullptr) {
        return lookup;
      }
      key = JobKey{field, false};
    }
  }
  lookup.key = key;
  return lookup;
}

std::vector<std::string> AllJobKeys() {
  std::vector<std::string> keys;
  AppendKeys(*JobSpec::descriptor(), "", keys);
  return keys;
}

std::string UnknownKeyAdvice(std::string_view name, const Descriptor& block) {
  const std::vector<std::string> names = KeyNames(block);
  if (const std::string nearest = NearestName(name, names); !nearest.empty()) {
    return StrCat("did you mean ", nearest, "?");
  }
  // Look for the same name in other blocks.
  constexpr size_t kMaxElsewhere = 3;
  std::vector<std::string> elsewhere;
  static const auto& keys_of_a_job = *new std::vector<std::string>(AllJobKeys());
  for (const std::string& key : keys_of_a_job) {
    if (key.ends_with(StrCat(".", name))) elsewhere.push_back(key);
  }
  if (!elsewhere.empty() && elsewhere.size() <= kMaxElsewhere) {
    return StrCat("did you mean ", absl::StrJoin(elsewhere, " or "), "?");
  }
  return StrCat("the keys here are ", absl::StrJoin(names, ", "));
}

std::string FormatDouble(double value) {
  char buffer[64];
  const auto end = std::to_chars(buffer, buffer + sizeof(buffer), value).ptr;
  std::string text(buffer, end);
  if (text.find('.') == std::string::npos) {
    text.insert(std::min(text.find('e'), text.size()), ".0");
  }
  return text;
}

std::string FormatBound(double value) {
  if (std::abs(value) < 1e12 && value == std::floor(value)) {
    return StrCat(static_cast<int64_t>(value));
  }
  char buffer[64];
  return {buffer, std::to_chars(buffer, buffer + sizeof(buffer), value).ptr};
}

}  // namespace freshet
