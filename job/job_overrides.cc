#include "job/job_overrides.h"

#include <charconv>
#include <optional>
#include <string_view>
#include <utility>

#include "base/str_cat.h"
#include "job/job_schema.h"

namespace freshet {
namespace {

constexpr int kFromSet = KeyPlaces::kFromSet;
constexpr size_t kMaxPathParts = 16;

ConfigError SetError(std::string path, std::string message) {
  return KeyPlaces().AtLine(kFromSet, std::move(path), std::move(message));
}

void MarkFromSet(YamlNode& node) {
  node.line = kFromSet;
  for (YamlNode& item : node.items) MarkFromSet(item);
  for (YamlEntry& entry : node.entries) {
    entry.line = kFromSet;
    MarkFromSet(entry.value);
  }
}

YamlNode Scalar(std::string_view text, bool quoted) {
  return {YamlNode::Kind::kScalar, kFromSet, std::string(text), quoted, {}, {}};
}

struct ParsedValue {
  YamlNode node;
  std::optional<std::string> error;
};

ParsedValue ParseValue(const std::string& path, std::string_view text) {
  const JobKeyLookup lookup = FindJobKey(path);
  if (!lookup.key) {
    return {Scalar(text, true), std::nullopt};
  }
  if (lookup.key->IsScalar()) {
    const bool is_text =
        lookup.key->ScalarType() == google::protobuf::FieldDescriptor::CPPTYPE_STRING;
    return {Scalar(text, is_text), std::nullopt};
  }
  YamlTree tree = ParseYamlTree(text);
  if (tree.error) {
    return {{}, StrCat("the value ", tree.error->message)};
  }
  MarkFromSet(tree.root);
  return {std::move(tree.root), std::nullopt};
}

std::optional<size_t> ParseIndex(std::string_view part) {
  size_t index = 0;
  const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), index);
  if (error != std::errc() || end != part.data() + part.size()) {
    return std::nullopt;
  }
  return index;
}

// Returns the child `part` of `node`, creating it if absent. On failure returns null and sets
// `why`.
YamlNode* Child(YamlNode& node, const std::string& part, std::string& why) {
  if (node.kind == YamlNode::Kind::kNull) {
    node.kind = YamlNode::Kind::kMap;
    node.line = kFromSet;
  }
  if (node.kind == YamlNode::Kind::kScalar) {
    why = "is below a value that is not a block";
    return nullptr;
  }
  if (node.kind == YamlNode::Kind::kMap) {
    for (YamlEntry& entry : node.entries) {
      if (entry.key == part) {
        return &entry.value;
      }
    }
    node.entries.push_back({part, kFromSet, {}});
    return &node.entries.back().value;
  }
  const std::optional<size_t> index = ParseIndex(part);
  if (!index) {
    why = StrCat("'", Excerpt(part), "' is not an index of a list; give a number from 0 to ",
                 node.items.size());
    return nullptr;
  }
  if (*index > node.items.size()) {
    why = StrCat("index ", *index, " is beyond the list; give a number from 0 to ",
                 node.items.size());
    return nullptr;
  }
  if (*index == node.items.size()) {
    node.items.emplace_back();
  }
  return &node.items[*index];
}

// Marks the entry as given by --set, for error messages.
void MarkEntry(YamlNode& parent, const std::string& part) {
  for (YamlEntry& entry : parent.entries) {
    if (entry.key == part) entry.line = kFromSet;
  }
}

std::optional<ConfigError> ApplyOne(const std::string& override_text, YamlNode& root) {
  const size_t equals = override_text.find('=');
  if (equals == std::string::npos || equals == 0) {
    return SetError("", StrCat("'", Excerpt(override_text), "' is not of the form key=value"));
  }
  const std::string path = override_text.substr(0, equals);
  const std::vector<std::string> parts = SplitList(path, '.');
  if (parts.size() > kMaxPathParts) {
    return SetError("", StrCat("'", Excerpt(path), "' is no key: it has ", parts.size(),
                               " parts, a key has at most ", kMaxPathParts));
  }
  ParsedValue value = ParseValue(path, std::string_view(override_text).substr(equals + 1));
  if (value.error) {
    return SetError(path, *std::move(value.error));
  }
  YamlNode* node = &root;
  YamlNode* parent = nullptr;
  for (const std::string& part : parts) {
    std::string why;
    parent = node;
    node = Child(*node, part, why);
    if (node == nullptr) {
      return SetError(path, std::move(why));
    }
  }
  *node = std::move(value.node);
  MarkEntry(*parent, parts.back());
  return std::nullopt;
}

}  // namespace

std::vector<ConfigError> ApplyOverrides(const std::vector<std::string>& overrides, YamlNode& root) {
  std::vector<ConfigError> errors;
  for (const std::string& override_text : overrides) {
    if (std::optional<ConfigError> error = ApplyOne(override_text, root)) {
      errors.push_back(*std::move(error));
    }
  }
  return errors;
}

}  // namespace freshet
