#ifndef FRESHET_SERVICES_LOCAL_RUN_FOLDER_H_
#define FRESHET_SERVICES_LOCAL_RUN_FOLDER_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

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
  ~RunFolder();
  RunFolder(RunFolder&& other) noexcept;
  RunFolder& operator=(RunFolder&& other) noexcept;

  const std::string& path() const { return path_; }
  std::string File(const std::string& name) const { return path_ + "/" + name; }

 private:
  RunFolder() = default;
  absl::Status Lock();

  std::string path_;
  int lock_fd_ = -1;
};

}  // namespace freshet

#endif  // FRESHET_SERVICES_LOCAL_RUN_FOLDER_H_
