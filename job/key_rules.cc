#include "job/key_rules.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <utility>

#include "absl/strings/str_join.h"
#include "base/str_cat.h"
#include "freshet/job/v1/key_options.pb.h"

namespace freshet {
namespace {

using google::protobuf::FieldDescriptor;
using ProtoMessage = google::protobuf::Message;
using google::protobuf::Reflection;
using job::v1::KeyOptions;

bool IsBlock(const FieldDescriptor& field) {
  return field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE && !field.is_repeated();
}

bool IsGiven(const ProtoMessage& message, const FieldDescriptor& field) {
  const Reflection& reflection = *message.GetReflection();
  return field.is_repeated() ? reflection.FieldSize(message, &field) > 0
                             : reflection.HasField(message, &field);
}

// Returns "" if `value` is allowed, otherwise "must be ...".
std::string RangeError(const KeyOptions& options, double value) {
  const bool too_small = options.has_min() && (options.above_min() ? !(value > options.min())
                                                                   : !(value >= options.min()));
  const bool too_large = options.has_max() && !(value <= options.max());
  if (!too_small && !too_large) {
    return "";
  }
  if (!options.has_max()) {
    return StrCat("must be ", options.above_min() ? "more than " : "at least ",
                  FormatBound(options.min()));
  }
  if (!options.has_min()) {
    return StrCat("must be at most ", FormatBound(options.max()));
  }
  return options.above_min() ? StrCat("must be more than ", FormatBound(options.min()),
                                      " and at most ", FormatBound(options.max()))
                             : StrCat("must be from ", FormatBound(options.min()), " to ",
                                      FormatBound(options.max()));
}

class KeyChecker {
 public:
  KeyChecker(const KeyPlaces& places, const std::vector<ConfigError>& earlier)
      : places_(places), earlier_(earlier) {}

  void CheckBlock(const ProtoMessage& block, const std::string& prefix) {
    const google::protobuf::Descriptor& type = *block.GetDescriptor();
    for (int i = 0; i < type.field_count(); ++i) {
      const FieldDescriptor& field = *type.field(i);
      const std::string path = prefix + field.name();
      if (!Applies(block, field)) {
        CheckNotGiven(block, field, prefix, path);
      } else if (!IsGiven(block, field) && !IsImplied(field)) {
        CheckAbsent(field, path);
      } else {
        CheckGiven(block, field, path);
      }
    }
  }

  std::vector<ConfigError> TakeErrors() { return std::move(errors_); }

 private:
  // Whether an absent block stands for its defaults.
  static bool IsImplied(const FieldDescriptor& field) {
    return IsBlock(field) && !OptionsOf(field).optional_block() && !OptionsOf(field).required();
  }

  void Add(const std::string& path, std::string message) {
    if (errors_.size() < kMaxErrors && !Concerns(earlier_, path)) {
      errors_.push_back(places_.At(path, std::move(message)));
    }
  }

  void CheckNotGiven(const ProtoMessage& block, const FieldDescriptor& field,
                     const std::string& prefix, const std::string& path) {
    if (!IsGiven(block, field)) {
      return;
    }
    const KeyCondition condition = *ConditionOf(field);
    const KeyOptions& sibling = OptionsOf(*condition.sibling);
    const std::string value = block.GetReflection()->GetString(block, condition.sibling);
    const std::vector<std::string> allowed = SplitList(sibling.one_of());
    const bool is_known = std::find(allowed.begin(), allowed.end(), value) != allowed.end();
    // If the sibling is wrong, it is unknown which keys apply.
    if ((!is_known && (sibling.required() || !value.empty())) ||
        Concerns(earlier_, prefix + condition.sibling->name())) {
      return;
    }
    const std::string otherwise =
        sibling.has_default_() ? sibling.default_() : StrCat("no ", condition.sibling->name());
    Add(path, StrCat("applies only with ", condition.sibling->name(), " ",
                     absl::StrJoin(condition.values, " or "), ", not with ",
                     value.empty() ? otherwise : value, "; remove it"));
  }

  void CheckAbsent(const FieldDescriptor& field, const std::string& path) {
    const KeyOptions& options = OptionsOf(field);
    if (!options.required()) {
      return;
    }
    std::string message = "is required but missing";
    if (!options.one_of().empty()) {
      message += StrCat("; give one of ", absl::StrJoin(SplitList(options.one_of()), ", "));
    }
    Add(path, std::move(message));
  }

  void CheckGiven(const ProtoMessage& block, const FieldDescriptor& field,
                  const std::string& path) {
    const Reflection& reflection = *block.GetReflection();
    if (IsBlock(field)) {
      CheckBlock(reflection.GetMessage(block, &field), path + ".");
    } else if (field.is_repeated()) {
      const std::string range = RangeError(OptionsOf(field), reflection.FieldSize(block, &field));
      if (!range.empty()) {
        Add(path,
            StrCat("the number of entries ", range, ", got ", reflection.FieldSize(block, &field)));
      }
      CheckEntries(block, field, path);
    } else {
      CheckScalar(block, field, path);
    }
  }

  // Checks the blocks in a list, or in a map, sorted by name.
  void CheckEntries(const ProtoMessage& block, const FieldDescriptor& field,
                    const std::string& path) {
    const FieldDescriptor& value = field.is_map() ? *field.message_type()->map_value() : field;
    if (value.cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE) return;
    const Reflection& reflection = *block.GetReflection();
    if (!field.is_map()) {
      for (int i = 0; i < reflection.FieldSize(block, &field); ++i) {
        CheckBlock(reflection.GetRepeatedMessage(block, &field, i), StrCat(path, ".", i, "."));
      }
      return;
    }
    std::map<std::string, const ProtoMessage*> entries;
    for (int i = 0; i < reflection.FieldSize(block, &field); ++i) {
      const ProtoMessage& entry = reflection.GetRepeatedMessage(block, &field, i);
      const Reflection& of_entry = *entry.GetReflection();
      entries[of_entry.GetString(entry, field.message_type()->map_key())] =
          &of_entry.GetMessage(entry, field.message_type()->map_value());
    }
    for (const auto& [name, entry] : entries) {
      CheckBlock(*entry, StrCat(path, ".", name, "."));
    }
  }

  void CheckScalar(const ProtoMessage& block, const FieldDescriptor& field,
                   const std::string& path) {
    const Reflection& reflection = *block.GetReflection();
    const KeyOptions& options = OptionsOf(field);
    std::string error;
    std::string got;
    if (field.cpp_type() == FieldDescriptor::CPPTYPE_STRING) {
      CheckText(reflection.GetString(block, &field), options, path);
    } else if (field.cpp_type() == FieldDescriptor::CPPTYPE_INT64) {
      got = StrCat(reflection.GetInt64(block, &field));
      error = RangeError(options, static_cast<double>(reflection.GetInt64(block, &field)));
    } else if (field.cpp_type() == FieldDescriptor::CPPTYPE_DOUBLE) {
      const double value = reflection.GetDouble(block, &field);
      got = FormatDouble(value);
      error = std::isfinite(value) ? RangeError(options, value) : "must be a finite number";
    }
    if (!error.empty()) {
      Add(path, StrCat(error, ", got ", got));
    }
  }

  void CheckText(const std::string& text, const KeyOptions& options, const std::string& path) {
    const std::vector<std::string> allowed = SplitList(options.one_of());
    if (!allowed.empty() && std::find(allowed.begin(), allowed.end(), text) == allowed.end()) {
      const std::string nearest = NearestName(text, allowed);
      Add(path,
          StrCat("must be ", allowed.size() > 1 ? "one of " : "", absl::StrJoin(allowed, ", "),
                 ", got '", Excerpt(text), "'",
                 nearest.empty() || allowed.size() == 1 ? ""
                                                        : StrCat("; did you mean ", nearest, "?")));
      return;
    }
    const std::string range = RangeError(options, static_cast<double>(text.size()));
    if (range.empty()) {
      return;
    }
    Add(path, text.empty() ? "must not be empty"
                           : StrCat("its length in bytes ", range, ", got ", text.size()));
  }

  const KeyPlaces& places_;
  const std::vector<ConfigError>& earlier_;
  std::vector<ConfigError> errors_;
};

}  // namespace

bool Concerns(const std::vector<ConfigError>& errors, std::string_view path) {
  const auto is_below = [](std::string_view inner, std::string_view outer) {
    return inner.size() > outer.size() && inner.starts_with(outer) && inner[outer.size()] == '.';
  };
  return std::any_of(errors.begin(), errors.end(), [&](const ConfigError& error) {
    return error.path == path || is_below(error.path, path) || is_below(path, error.path);
  });
}

std::vector<ConfigError> CheckKeys(const JobSpec& spec, const KeyPlaces& places,
                                   const std::vector<ConfigError>& earlier) {
  KeyChecker checker(places, earlier);
  checker.CheckBlock(spec, "");
  return checker.TakeErrors();
}

}  // namespace freshet
