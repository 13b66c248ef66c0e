#ifndef FRESHET_JOB_CONFIG_ERROR_H_
#define FRESHET_JOB_CONFIG_ERROR_H_

#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace freshet {

// One error in a job, with its location.
struct ConfigError {
  std::string file;     // job file name as given, or "--set"
  int line = 0;         // 1-based; 0 if unknown
  std::string path;     // key, such as "rollout.max_new_tokens"; empty for the whole file
  std::string message;  // one line, lower case, names the fix
  std::string block{};  // before `path`: "policies.worker" for a key of that policy
};

// Maximum number of errors that one pass over a job collects. Bounds the work on hostile input,
// because later passes compare errors with keys.
constexpr size_t kMaxErrors = 200;

// Lines at which the keys of a job were given. Thread-compatible: const methods may run
// concurrently.
class KeyPlaces {
 public:
  static constexpr int kFromSet = -1;

  KeyPlaces() = default;
  explicit KeyPlaces(std::string file) : file_(std::move(file)) {}

  // `line` is 1-based, or kFromSet for a key given by --set.
  void Record(const std::string& path, int line) { lines_[path] = line; }

  // Errors at the keys `own`, and below them, get `block`.
  void SetBlock(std::string block, std::set<std::string> own) {
    block_ = std::move(block);
    own_ = std::move(own);
  }
  // `block` if the key is one of `own` or below one, else "".
  std::string BlockOf(const std::string& path) const;

  // An error at `path`, located at that key or, if it was not given, at its enclosing block.
  ConfigError At(const std::string& path, std::string message) const;

  // An error at a line of the file (0: no line) or, for kFromSet, in --set.
  ConfigError AtLine(int line, std::string path, std::string message) const;

 private:
  std::string file_ = "job";
  std::map<std::string, int> lines_;
  std::string block_;
  std::set<std::string> own_;
};

// "job.yaml:12: rollout.max_new_tokns: unknown key; did you mean max_new_tokens?"
std::string FormatConfigError(const ConfigError& error);

// One line per error, each ending in a newline; after `limit` errors "and N more".
std::string FormatConfigErrors(const std::vector<ConfigError>& errors, size_t limit = 5);

// Sorts by line of the file, then errors of --set, then errors without a line.
void SortConfigErrors(std::vector<ConfigError>& errors);

// The entry of `names` nearest to `word` by edit distance, or "" if none is near. A swap of
// neighbours counts once; case and '-' versus '_' do not count.
std::string NearestName(std::string_view word, const std::vector<std::string>& names);

// `text` made quotable in a message: one line, printable, truncated to `max_bytes`.
std::string Excerpt(std::string_view text, size_t max_bytes = 40);

}  // namespace freshet

#endif  // FRESHET_JOB_CONFIG_ERROR_H_
