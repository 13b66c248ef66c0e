#include "job/job_explain.h"

#include <algorithm>
#include <map>
#include <sstream>

#include "absl/strings/str_join.h"
#include "base/str_cat.h"
#include "freshet/job/v1/key_options.pb.h"
#include "google/protobuf/descriptor.pb.h"
#include "job/config_error.h"
#include "job/job_schema.h"
#include "job/policies.h"
#include "job/scalar_value.h"
#include "proto/freshet/job/v1/job_spec_source.h"

namespace freshet {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;

constexpr size_t kLineWidth = 92;

// Field numbers of FileDescriptorProto and DescriptorProto in a SourceCodeInfo path.
constexpr int kMessageTypes = 4;
constexpr int kFields = 2;

// Field comments by {message index in the file, field index}. Never destroyed.
const std::map<std::pair<int, int>, std::string>& FieldComments() {
  static const auto& comments = *[] {
    auto* by_field = new std::map<std::pair<int, int>, std::string>();
    google::protobuf::FileDescriptorSet set;
    const std::string_view bytes = JobSpecSource();
    if (!set.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
      return by_field;
    }
    for (const auto& file : set.file()) {
      for (const auto& place : file.source_code_info().location()) {
        if (place.path_size() == 4 && place.path(0) == kMessageTypes && place.path(2) == kFields) {
          (*by_field)[{place.path(1), place.path(3)}] = place.leading_comments();
        }
      }
    }
    return by_field;
  }();
  return comments;
}

// The field's comment on one line.
std::string Comment(const FieldDescriptor& field) {
  const auto found = FieldComments().find({field.containing_type()->index(), field.index()});
  if (found == FieldComments().end()) {
    return "";
  }
  std::istringstream words(found->second);
  std::string comment;
  for (std::string word; words >> word;) {
    comment += comment.empty() ? word : " " + word;
  }
  return comment;
}

std::string Wrapped(const std::string& text, const std::string& indent) {
  std::istringstream words(text);
  std::string lines;
  std::string line = indent;
  for (std::string word; words >> word;) {
    if (line.size() + 1 + word.size() > kLineWidth && line != indent) {
      lines += line + "\n";
      line = indent;
    }
    line += line == indent ? word : " " + word;
  }
  return lines + line + "\n";
}

std::string FirstSentence(const std::string& comment) {
  const size_t end = comment.find(". ");
  return end == std::string::npos ? comment : comment.substr(0, end + 1);
}

std::string TypeName(const JobKey& key) {
  const FieldDescriptor& field = *key.field;
  if (key.IsScalar()) {
    return ScalarTypeName(key.ScalarType());
  }
  if (key.Block() != nullptr) {
    return "block of keys";
  }
  const JobKey entry{&field, true};
  const std::string of_entry = entry.IsScalar()           ? ScalarTypeName(entry.ScalarType())
                               : entry.Block() != nullptr ? "block of keys"
                                                          : "map of field to text";
  if (key.entry) {
    return of_entry;
  }
  return StrCat(field.is_map() ? "map of name to " : "list of ", of_entry);
}

std::string RangeText(const FieldDescriptor& field) {
  const job::v1::KeyOptions& options = OptionsOf(field);
  std::string text;
  if (options.has_min()) {
    text = StrCat(options.above_min() ? "more than "
                  : options.has_max() ? ""
                                      : "at least ",
                  FormatBound(options.min()));
  }
  if (options.has_max()) {
    text += StrCat(text.empty()          ? "at most "
                   : options.above_min() ? ", at most "
                                         : " to ",
                   FormatBound(options.max()));
  }
  if (text.empty()) {
    return "";
  }
  if (field.is_repeated()) {
    return text + " entries";
  }
  return field.cpp_type() == FieldDescriptor::CPPTYPE_STRING ? text + " bytes" : text;
}

std::string DefaultText(const FieldDescriptor& field) {
  const job::v1::KeyOptions& options = OptionsOf(field);
  if (options.has_default_()) {
    return options.default_();
  }
  return options.required() ? "none, the key is required" : "";
}

std::string AbsentText(const FieldDescriptor& field) {
  if (!OptionsOf(field).when_absent().empty()) {
    return OptionsOf(field).when_absent();
  }
  const Descriptor& block = *field.containing_type();
  const bool of_loss =
      &block == job::v1::Loss::descriptor() || &block == job::v1::Clip::descriptor() ||
      &block == job::v1::Correction::descriptor() || &block == job::v1::Kl::descriptor();
  return of_loss ? "what loss.preset says" : "";
}

std::string ExplainField(const JobKey& key) {
  const FieldDescriptor& field = *key.field;
  std::string text = Wrapped(Comment(field), "  ");
  const auto add = [&text](std::string_view name, const std::string& value) {
    if (!value.empty()) text += StrCat("  ", name, ": ", value, "\n");
  };
  std::string type = TypeName(key);
  for (const std::string_view article : {"a ", "an "}) {
    if (type.starts_with(article)) type.erase(0, article.size());
  }
  add("type", type);
  if (!key.entry) {
    add("default", DefaultText(field));
    add("when absent", AbsentText(field));
    add("range", RangeText(field));
  }
  add("one of", absl::StrJoin(SplitList(OptionsOf(field).one_of()), ", "));
  if (const auto condition = ConditionOf(field)) {
    add("applies with",
        StrCat(condition->sibling->name(), " ", absl::StrJoin(condition->values, ", ")));
  }
  return text;
}

std::string ExplainPolicies() {
  return Wrapped(StrCat("Several policies that learn together, each by a job of its own: a map of ",
                        kMinPolicies, " to ", kMaxPolicies,
                        " names to the keys in which their jobs differ from the file's other keys. "
                        "A job is named NAME-POLICY. If one fails or is cancelled, the others are "
                        "cancelled."),
                 "  ") +
         "  type: map of name to block of keys\n  when absent: the file is one job\n";
}

size_t WidthOfNames(const Descriptor& block) {
  size_t width = 0;
  for (const std::string& name : KeyNames(block)) width = std::max(width, name.size());
  return width;
}

std::string ListKey(std::string_view name, size_t width, std::string_view meaning) {
  return StrCat("  ", name, std::string(width - name.size() + 2, ' '), meaning, "\n");
}

std::string ListBlock(const Descriptor& block) {
  const size_t width = WidthOfNames(block);
  std::string text;
  for (int i = 0; i < block.field_count(); ++i) {
    const FieldDescriptor& field = *block.field(i);
    text += ListKey(field.name(), width, FirstSentence(Comment(field)));
  }
  return text;
}

// The key of a job file that no job has.
std::string ListPolicies() {
  return ListKey(kPolicies, WidthOfNames(*JobSpec::descriptor()),
                 "Several jobs that are trained together; see freshet explain policies.");
}

}  // namespace

absl::StatusOr<std::string> ExplainKey(std::string_view path) {
  if (path.empty()) {
    return StrCat("a job file\n  keys:\n", ListBlock(*JobSpec::descriptor()), ListPolicies());
  }
  const std::vector<std::string> parts = SplitList(path, '.');
  if (parts.front() == kPolicies) {
    if (parts.size() < 3) return StrCat(path, "\n", ExplainPolicies());
    return ExplainKey(path.substr(parts[0].size() + parts[1].size() + 2));
  }
  const JobKeyLookup lookup = FindJobKey(path);
  if (!lookup.key) {
    const size_t dot = lookup.unknown_path.rfind('.');
    const std::string part = lookup.unknown_path.substr(dot == std::string::npos ? 0 : dot + 1);
    return InvalidArgument("unknown key ", Excerpt(lookup.unknown_path, 120), "; ",
                           lookup.parent == nullptr ? "what stands before it has no keys"
                                                    : UnknownKeyAdvice(part, *lookup.parent));
  }
  std::string text = StrCat(path, "\n", ExplainField(*lookup.key));
  const Descriptor* block = lookup.key->Block();
  const char* heading = "  keys:\n";
  if (block == nullptr && !lookup.key->entry && lookup.key->field->is_repeated()) {
    block = JobKey{lookup.key->field, true}.Block();
    heading = "  keys of each entry:\n";
  }
  return block == nullptr ? text : StrCat(text, heading, ListBlock(*block));
}

}  // namespace freshet
