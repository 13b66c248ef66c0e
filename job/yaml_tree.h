#ifndef FRESHET_JOB_YAML_TREE_H_
#define FRESHET_JOB_YAML_TREE_H_

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace freshet {

struct YamlEntry;

// One value of a YAML document, with the line it starts in.
struct YamlNode {
  enum class Kind { kNull, kScalar, kList, kMap };
  Kind kind = Kind::kNull;
  int line = 0;                    // 1-based, or KeyPlaces::kFromSet
  std::string text;                // kScalar
  bool quoted = false;             // kScalar: text by notation, whatever it looks like
  std::vector<YamlNode> items;     // kList
  std::vector<YamlEntry> entries;  // kMap, in the order of the file; keys may repeat
};

struct YamlEntry {
  std::string key;
  int line = 0;
  YamlNode value;
};

struct YamlError {
  int line = 0;  // 1-based; 0 when it concerns the whole text
  std::string message;
};

struct YamlTree {
  YamlNode root;                   // kNull for a text without a document
  std::optional<YamlError> error;  // the first error; then `root` is empty
};

constexpr size_t kMaxYamlBytes = size_t{4} << 20;
constexpr int kMaxYamlDepth = 32;
constexpr size_t kMaxYamlValues = 200000;

// Reads one YAML document from untrusted bytes. Refused, each with one clear error: more than
// kMaxYamlBytes, control characters and broken UTF-8, nesting beyond kMaxYamlDepth, more than
// kMaxYamlValues values, several documents, aliases, tags, keys that are not text.
// Time and memory are linear in the size of the text. Thread-safe.
YamlTree ParseYamlTree(std::string_view text);

}  // namespace freshet

#endif  // FRESHET_JOB_YAML_TREE_H_
