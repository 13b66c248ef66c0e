#include "job/job_yaml.h"

#include <map>

#include "base/str_cat.h"
#include "job/scalar_value.h"

namespace freshet {
namespace {

using google::protobuf::FieldDescriptor;
using ProtoMessage = google::protobuf::Message;
using google::protobuf::Reflection;

std::string WriteBlock(const ProtoMessage& block, int indent);

std::string Indent(int indent) { return std::string(static_cast<size_t>(indent), ' '); }

// Text after "key:" for a block: indented lines, or " {}" if empty.
std::string Nested(const std::string& block) { return block.empty() ? " {}\n" : "\n" + block; }

// Entries of a map field, sorted by name.
std::string WriteMap(const ProtoMessage& message, const FieldDescriptor& field, int indent) {
  const Reflection& reflection = *message.GetReflection();
  const FieldDescriptor& key = *field.message_type()->map_key();
  const FieldDescriptor& value = *field.message_type()->map_value();
  std::map<std::string, const ProtoMessage*> entries;
  for (int i = 0; i < reflection.FieldSize(message, &field); ++i) {
    const ProtoMessage& entry = reflection.GetRepeatedMessage(message, &field, i);
    entries[entry.GetReflection()->GetString(entry, &key)] = &entry;
  }
  std::string text;
  for (const auto& [name, entry] : entries) {
    text += StrCat(Indent(indent), QuoteText(name), ":");
    if (value.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
      text += Nested(WriteBlock(entry->GetReflection()->GetMessage(*entry, &value), indent + 2));
    } else {
      text += StrCat(" ", ScalarText(*entry, value), "\n");
    }
  }
  return text;
}

std::string WriteList(const ProtoMessage& message, const FieldDescriptor& field, int indent) {
  const Reflection& reflection = *message.GetReflection();
  std::string text;
  for (int i = 0; i < reflection.FieldSize(message, &field); ++i) {
    text += Indent(indent) + "-";
    if (field.cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE) {
      text += StrCat(" ", ScalarText(message, field, i), "\n");
      continue;
    }
    const std::string block =
        WriteBlock(reflection.GetRepeatedMessage(message, &field, i), indent + 2);
    // The first key goes on the line of the dash.
    text += block.empty() ? " {}\n" : " " + block.substr(static_cast<size_t>(indent) + 2);
  }
  return text;
}

std::string WriteField(const ProtoMessage& block, const FieldDescriptor& field, int indent) {
  const std::string head = StrCat(Indent(indent), field.name(), ":");
  if (field.is_map()) {
    return head + Nested(WriteMap(block, field, indent + 2));
  }
  if (field.is_repeated()) {
    return head + "\n" + WriteList(block, field, indent + 2);
  }
  if (field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
    return head + Nested(WriteBlock(block.GetReflection()->GetMessage(block, &field), indent + 2));
  }
  return StrCat(head, " ", ScalarText(block, field), "\n");
}

std::string WriteBlock(const ProtoMessage& block, int indent) {
  if (const FieldDescriptor* map = InlineMap(*block.GetDescriptor())) {
    return WriteMap(block, *map, indent);
  }
  const google::protobuf::Descriptor& type = *block.GetDescriptor();
  const Reflection& reflection = *block.GetReflection();
  std::string text;
  for (int i = 0; i < type.field_count(); ++i) {
    const FieldDescriptor& field = *type.field(i);
    const bool is_set = field.is_repeated() ? reflection.FieldSize(block, &field) > 0
                                            : reflection.HasField(block, &field);
    if (is_set) {
      text += WriteField(block, field, indent);
    }
  }
  return text;
}

}  // namespace

std::string WriteJobYaml(const JobSpec& spec) { return WriteBlock(spec, 0); }

}  // namespace freshet
