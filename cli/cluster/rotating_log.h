#ifndef FRESHET_CLI_CLUSTER_ROTATING_LOG_H_
#define FRESHET_CLI_CLUSTER_ROTATING_LOG_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "base/unique_fd.h"

namespace freshet {

// A log of bounded size: when the file exceeds the limit it is renamed to PATH.1, replacing the
// former one, and a new one is started. Output that cannot be written (disk full) is dropped. Not
// thread-safe.
class RotatingLog {
 public:
  RotatingLog(std::string path, int64_t max_bytes);

  void Write(std::string_view bytes);

 private:
  void Open();

  const std::string path_;
  const int64_t max_bytes_;
  UniqueFd fd_;
  int64_t bytes_ = 0;
};

}  // namespace freshet

#endif  // FRESHET_CLI_CLUSTER_ROTATING_LOG_H_
