#ifndef FRESHET_SERVICES_SANDBOX_SERVICE_WORK_FOLDER_H_
#define FRESHET_SERVICES_SANDBOX_SERVICE_WORK_FOLDER_H_

#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "base/unique_fd.h"

namespace freshet::sandbox {

// The folder of all programs' folders. Without a given one it is temporary: removed with this
// object, or by the next Create after a process that was killed.
class WorkFolder {
 public:
  // `given`: an absolute path, made if it is missing; "": a temporary folder in `parent`, locked
  // while this object lives. Removes those in `parent` that this user made and no process locks.
  // FAILED_PRECONDITION: it cannot be made; the message names it.
  static absl::StatusOr<std::unique_ptr<WorkFolder>> Create(const std::string& given,
                                                            const std::string& parent = "/tmp");
  WorkFolder(std::string path, UniqueFd lock) : path_(std::move(path)), lock_(std::move(lock)) {}
  ~WorkFolder();
  WorkFolder(const WorkFolder&) = delete;
  WorkFolder& operator=(const WorkFolder&) = delete;

  const std::string& path() const { return path_; }

 private:
  const std::string path_;
  const UniqueFd lock_;  // none: it was given
};

}  // namespace freshet::sandbox

#endif  // FRESHET_SERVICES_SANDBOX_SERVICE_WORK_FOLDER_H_
