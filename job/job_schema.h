#ifndef FRESHET_JOB_JOB_SCHEMA_H_
#define FRESHET_JOB_JOB_SCHEMA_H_

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "freshet/job/v1/job_spec.pb.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/message.h"

namespace freshet {

using JobSpec = job::v1::JobSpec;

// Job keys as described by the proto. All functions are pure and thread-safe.

const job::v1::KeyOptions& OptionsOf(const google::protobuf::FieldDescriptor& field);

// "a,b" -> {"a", "b"}; "" -> {}.
std::vector<std::string> SplitList(std::string_view list, char separator = ',');

std::vector<std::string> KeyNames(const google::protobuf::Descriptor& block);

// The condition of KeyOptions.when.
struct KeyCondition {
  const google::protobuf::FieldDescriptor* sibling = nullptr;
  std::vector<std::string> values;
};
std::optional<KeyCondition> ConditionOf(const google::protobuf::FieldDescriptor& field);

// Whether the key applies, given its siblings in `block`.
bool Applies(const google::protobuf::Message& block,
             const google::protobuf::FieldDescriptor& field);

// The message's only field if KeyOptions.inline_map is set (the message is written as that map),
// otherwise null.
const google::protobuf::FieldDescriptor* InlineMap(const google::protobuf::Descriptor& message);

// The key that a path such as "reward.components.exact.weight" or "dataset.rows.0" refers to.
struct JobKey {
  // The field. For an entry of a map or list, the map or list.
  const google::protobuf::FieldDescriptor* field = nullptr;
  bool entry = false;  // refers to one entry of `field`

  // The block at the path; null for text, numbers, whole lists and whole maps.
  const google::protobuf::Descriptor* Block() const;
  // Whether it is a single text, number or boolean.
  bool IsScalar() const;
  // Type of the value or of each entry.
  google::protobuf::FieldDescriptor::CppType ScalarType() const;
};

struct JobKeyLookup {
  std::optional<JobKey> key;
  // If the key does not exist: the path up to the first unknown component, and the block before it
  // (null if that has no keys).
  std::string unknown_path;
  const google::protobuf::Descriptor* parent = nullptr;
};
JobKeyLookup FindJobKey(std::string_view path);

// All keys that take a value, in proto order. Entries of maps and lists are written NAME and N, as
// in "reward.components.NAME.weight".
std::vector<std::string> AllJobKeys();

// "did you mean X?" or "the keys here are ..." for an unknown `name` in `block`.
std::string UnknownKeyAdvice(std::string_view name, const google::protobuf::Descriptor& block);

// Shortest text that parses back to the same double. Always has a decimal point, so that every YAML
// reader sees a number.
std::string FormatDouble(double value);

// A bound for messages: 600000, 0.5, 1e-06.
std::string FormatBound(double value);

}  // namespace freshet

#endif  // FRESHET_JOB_JOB_SCHEMA_H_
