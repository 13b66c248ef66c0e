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
  // Makes `path` with job.yaml in it. FAILED_PRECONDITION when it exists already; the message says
  // how to resume it. On any error nothing is left behind that was not there before.
  static absl::StatusOr<RunFolder> Create(const std::string& path, const std::string& job_yaml);
  // Opens an existing run. NOT_FOUND when there is none, FAILED_PRECONDITION when another process
  // works in it.
  static absl::StatusOr<RunFolder> Open(const std::string& path);

  // Replaces job.yaml; a reader sees the old job or the new. The folder stays held throughout.
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
