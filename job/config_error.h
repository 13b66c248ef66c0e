#ifndef FRESHET_JOB_CONFIG_ERROR_H_
#define FRESHET_JOB_CONFIG_ERROR_H_

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace freshet {

// One thing wrong with a job, with the place where it is mended.
struct ConfigError {
  std::string file;     // name of the job file as it was given, or "--set"
  int line = 0;         // 1-based; 0 when the error has no line
  std::string path;     // key, as in "rollout.max_new_tokens"; empty for the whole file
  std::string message;  // one line, lower case, says the fix
};

// Errors that one pass over a job collects; beyond them a job is hostile, and the work of comparing
// errors with keys must stay small.
constexpr size_t kMaxErrors = 200;

// Where the keys of a job were given. Thread-compatible: const methods may run concurrently.
class KeyPlaces {
 public:
  static constexpr int kFromSet = -1;

  KeyPlaces() = default;
  explicit KeyPlaces(std::string file) : file_(std::move(file)) {}

  // `line` is 1-based, or kFromSet for a key given by --set.
  void Record(const std::string& path, int line) { lines_[path] = line; }

  // A error at `path`; when that key was not given, at the line of the block it belongs to.
  ConfigError At(const std::string& path, std::string message) const;

  // A error at a line of the file (0: none) or, for kFromSet, of --set.
  ConfigError AtLine(int line, std::string path, std::string message) const;

 private:
  std::string file_ = "job";
  std::map<std::string, int> lines_;
};

// "job.yaml:12: rollout.max_new_tokns: unknown key; did you mean max_new_tokens?"
std::string FormatConfigError(const ConfigError& error);

// One line per error, each ended by a newline; after `limit` of them "and N more".
std::string FormatConfigErrors(const std::vector<ConfigError>& errors, size_t limit = 5);

// In the order of the lines of the file, then those of --set, then those of the whole file.
void SortConfigErrors(std::vector<ConfigError>& errors);

// The entry of `names` that `word` is most likely a misspelling of, by edit distance (a swap of
// neighbours counts once, upper case and '-' for '_' not at all); "" when none is near.
std::string NearestName(std::string_view word, const std::vector<std::string>& names);

// `text` fit to be quoted in a message: on one line, printable, cut after `max_bytes`.
std::string Excerpt(std::string_view text, size_t max_bytes = 40);

}  // namespace freshet

#endif  // FRESHET_JOB_CONFIG_ERROR_H_
