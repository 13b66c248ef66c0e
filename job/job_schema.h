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

// The keys of a job file, as the proto describes them. All functions are pure and thread-safe.

const job::v1::KeyOptions& OptionsOf(const google::protobuf::FieldDescriptor& field);

// "a,b" -> {"a", "b"}; "" -> {}.
std::vector<std::string> SplitList(std::string_view list, char separator = ',');
// {"a", "b"} -> "a, b".
std::string JoinNames(const std::vector<std::string>& names);

// Names of the keys of a block.
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

// The only field of a message that is written as a map itself (KeyOptions.inline_map), or null.
const google::protobuf::FieldDescriptor* InlineMap(const google::protobuf::Descriptor& message);

// What a path like "reward.components.exact.weight" or "dataset.rows.0" stands for.
struct JobKey {
  // The field, or for an entry of a map or list the map or list.
  const google::protobuf::FieldDescriptor* field = nullptr;
  bool entry = false;  // an entry of `field`, not the whole of it

  // The block behind the path; null for text, numbers, whole lists and whole maps.
  const google::protobuf::Descriptor* Block() const;
  // A single text, number or truth value.
  bool IsScalar() const;
  // Type of a single value or of each entry.
  google::protobuf::FieldDescriptor::CppType ScalarType() const;
};

struct JobKeyLookup {
  std::optional<JobKey> key;
  // When there is no such key: the path up to the first unknown part, and the block before it
  // (null when the parent has no keys).
  std::string unknown_path;
  const google::protobuf::Descriptor* parent = nullptr;
};
JobKeyLookup FindJobKey(std::string_view path);

// Every key that takes a value, in the order of the proto; entries of maps and lists are written
// NAME and N, as in "reward.components.NAME.weight".
std::vector<std::string> AllJobKeys();

// "did you mean X?" or "the keys here are ...", for a name that `block` does not have.
std::string UnknownKeyAdvice(std::string_view name, const google::protobuf::Descriptor& block);

// Shortest text from which the same double is read; always with a point, so that every YAML
// reader sees a number.
std::string FormatDouble(double value);

// A bound for people: 600000, 0.5, 1e-06.
std::string FormatBound(double value);

}  // namespace freshet

#endif  // FRESHET_JOB_JOB_SCHEMA_H_
