#ifndef FRESHET_BASE_JSON_DOCUMENT_H_
#define FRESHET_BASE_JSON_DOCUMENT_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "nlohmann/json.hpp"

namespace freshet {

// Limits of one JSON text. The depth is far above that of any Hugging Face file.
struct JsonLimits {
  int max_depth = 64;
  uint64_t max_values = 16'000'000;  // 16 bytes each; the largest known tokenizer has 2 million
};

// Parses untrusted JSON without exceptions or recursion. Messages start with `source` (a file
// path). Duplicate names in an object and invalid UTF-8 are errors.
// INVALID_ARGUMENT: malformed text, with line and column, or a limit exceeded.
absl::StatusOr<nlohmann::json> ParseJson(std::string_view text, const std::string& source,
                                         const JsonLimits& limits = {});

// Like ParseJson, but members keep their order. Such objects are searched linearly, so one of more
// than kMaxOrderedMembers members is an error, too.
constexpr size_t kMaxOrderedMembers = 1024;
absl::StatusOr<nlohmann::ordered_json> ParseOrderedJson(std::string_view text,
                                                        const std::string& source);

// Number of members of the largest object in `json`.
size_t LargestObject(const nlohmann::json& json);

// Whether brackets outside strings nest deeper than `max_depth` in `text`, which need not be valid
// JSON. For parsers that recurse.
bool NestsDeeper(std::string_view text, int max_depth);

// Reads typed members of one JSON object and collects what is wrong with them, one line per error:
// "SOURCE: NAME is VALUE, want ...". An absent or null member takes `fallback` and is no error.
// Confined to one thread. The object must outlive the reader.
class JsonFields {
 public:
  JsonFields(const nlohmann::json& object, std::string source, std::vector<std::string>& errors);

  bool Has(const char* name) const;
  // Whether the member is there, perhaps as null.
  bool Contains(const char* name) const;
  // Returns JSON null if absent.
  const nlohmann::json& Get(const char* name) const;
  int64_t Int(const char* name, int64_t fallback, int64_t min, int64_t max);
  // Like Int, but an absent member is an error.
  int64_t RequiredInt(const char* name, int64_t min, int64_t max);
  double Number(const char* name, double fallback);
  bool Bool(const char* name, bool fallback);
  std::string String(const char* name, const std::string& fallback);
  void AddError(const std::string& message);

 private:
  const nlohmann::json& object_;
  std::string source_;
  std::vector<std::string>& errors_;
};

// `value` as JSON, truncated to fit in a message.
std::string JsonExcerpt(const nlohmann::json& value);

// INVALID_ARGUMENT with one error per line; OK if `errors` is empty.
absl::Status ErrorsToStatus(const std::vector<std::string>& errors);

}  // namespace freshet

#endif  // FRESHET_BASE_JSON_DOCUMENT_H_
