#ifndef FRESHET_ENV_WORKERS_OPTION_READER_H_
#define FRESHET_ENV_WORKERS_OPTION_READER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "env_workers/environment.h"

namespace freshet {

// Reads the options of one reset and keeps the first error. Not thread-safe.
class OptionReader {
 public:
  explicit OptionReader(const EnvironmentOptions& options) : options_(options) {}

  // A decimal integer in [min, max]; `otherwise` if the option is absent or invalid.
  int64_t Int(const std::string& name, int64_t otherwise, int64_t min, int64_t max);
  // One of `allowed`; its first entry if the option is absent or invalid.
  std::string Choice(const std::string& name, const std::vector<std::string>& allowed);
  // The option's text, or `otherwise` if absent.
  std::string Text(const std::string& name, const std::string& otherwise) const;

  // The first error: INVALID_ARGUMENT "options.NAME: VALUE ...".
  const absl::Status& status() const { return status_; }

 private:
  void AddError(absl::Status error) {
    if (status_.ok()) status_ = std::move(error);
  }

  const EnvironmentOptions& options_;
  absl::Status status_;
};

}  // namespace freshet

#endif  // FRESHET_ENV_WORKERS_OPTION_READER_H_
