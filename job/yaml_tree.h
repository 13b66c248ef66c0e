#ifndef FRESHET_JOB_YAML_TREE_H_
#define FRESHET_JOB_YAML_TREE_H_

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace freshet {

struct YamlEntry;

// One YAML value, with the line at which it starts.
struct YamlNode {
  enum class Kind { kNull, kScalar, kList, kMap };
  Kind kind = Kind::kNull;
  int line = 0;                    // 1-based, or KeyPlaces::kFromSet
  std::string text;                // kScalar
  bool quoted = false;             // kScalar: text, whatever it looks like
  std::vector<YamlNode> items;     // kList
  std::vector<YamlEntry> entries;  // kMap, in file order; keys may repeat
};

struct YamlEntry {
  std::string key;
  int line = 0;
  YamlNode value;
};

struct YamlError {
  int line = 0;  // 1-based; 0 for the whole text
  std::string message;
};

struct YamlTree {
  YamlNode root;                   // kNull for an empty document
  std::optional<YamlError> error;  // the first error; `root` is then empty
};

constexpr size_t kMaxYamlBytes = size_t{4} << 20;
constexpr int kMaxYamlDepth = 32;
constexpr size_t kMaxYamlValues = 200000;

// Parses one YAML document from untrusted bytes. Rejects, with one error each: more than
// kMaxYamlBytes, control characters, invalid UTF-8, nesting beyond kMaxYamlDepth, more than
// kMaxYamlValues values, multiple documents, aliases, tags, and keys that are not text. Time and
// memory are linear in the size of the text. Thread-safe.
YamlTree ParseYamlTree(std::string_view text);

}  // namespace freshet

#endif  // FRESHET_JOB_YAML_TREE_H_
