#ifndef FRESHET_LOCAL_RUN_FOLDER_H_
#define FRESHET_LOCAL_RUN_FOLDER_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/unique_fd.h"

namespace freshet {

// A run's folder, held by one process at a time (advisory lock on job.yaml).
class RunFolder {
 public:
  // Creates `path` with job.yaml in it. FAILED_PRECONDITION if it exists; the message says how to
  // resume it. On error nothing new is left behind.
  static absl::StatusOr<RunFolder> Create(const std::string& path, const std::string& job_yaml);
  // Opens an existing run. NOT_FOUND if there is none, FAILED_PRECONDITION if another process holds
  // it.
  static absl::StatusOr<RunFolder> Open(const std::string& path);

  // Atomically replaces job.yaml. The folder stays locked throughout.
  absl::Status ReplaceJob(const std::string& job_yaml);

  const std::string& path() const { return path_; }
  std::string File(const std::string& name) const { return path_ + "/" + name; }

 private:
  RunFolder() = default;
  absl::Status Lock(const std::string& file);

  std::string path_;
  UniqueFd lock_;
};

}  // namespace freshet

#endif  // FRESHET_LOCAL_RUN_FOLDER_H_
