#include "local/run_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#include "base/file.h"
#include "base/status_macros.h"
#include "base/str_cat.h"

namespace freshet {
namespace {

namespace fs = std::filesystem;

// Parent directories of a new folder. Those that it created are removed again unless they are no
// longer empty or Keep() was called.
class ParentFolders {
 public:
  absl::Status Make(const fs::path& parent) {
    std::error_code error;
    for (fs::path at = parent; !fs::exists(at, error) && at != at.parent_path();
         at = at.parent_path()) {
      made_.push_back(at);
    }
    fs::create_directories(parent, error);
    return error ? WriteError(parent.string(), error.value()) : absl::OkStatus();
  }
  void Keep() { made_.clear(); }
  ~ParentFolders() {
    std::error_code ignored;
    for (const fs::path& path : made_) fs::remove(path, ignored);
  }

 private:
  std::vector<fs::path> made_;  // deepest first
};

}  // namespace

absl::StatusOr<RunFolder> RunFolder::Create(const std::string& path, const std::string& job_yaml) {
  std::error_code error;
  const fs::path parent = fs::absolute(path, error).parent_path();
  if (fs::exists(path, error)) {
    const bool is_run = fs::exists(fs::path(path) / "job.yaml", error);
    return FailedPrecondition(
        path, is_run ? StrCat(": the run exists already; continue it with --resume ", path,
                              ", or choose another folder with --run-dir")
                     : ": exists and is not a run; choose another folder with --run-dir");
  }
  ParentFolders parents;
  FRESHET_RETURN_IF_ERROR(parents.Make(parent));
  // A single mkdir, so that only one of two concurrent processes succeeds.
  if (!fs::create_directory(path, error)) {
    return error ? WriteError(path, error.value())
                 : FailedPrecondition(path, ": another process has just started this run");
  }
  RunFolder folder;
  folder.path_ = path;
  absl::Status status = WriteFileAtomically(folder.File("job.yaml"), job_yaml);
  if (status.ok()) {
    fs::create_directory(fs::path(path) / "checkpoints", error);
    if (error) status = WriteError(folder.File("checkpoints"), error.value());
  }
  if (status.ok()) status = folder.Lock("job.yaml");
  if (!status.ok()) {
    fs::remove_all(path, error);
    return status;
  }
  parents.Keep();
  return folder;
}

absl::StatusOr<RunFolder> RunFolder::Open(const std::string& path) {
  RunFolder folder;
  folder.path_ = path;
  std::error_code error;
  if (!fs::exists(folder.File("job.yaml"), error)) {
    return NotFound(path, ": no run here (there is no job.yaml); start one without --resume");
  }
  FRESHET_RETURN_IF_ERROR(folder.Lock("job.yaml"));
  return folder;
}

absl::Status RunFolder::ReplaceJob(const std::string& job_yaml) {
  // The new file is locked before it is renamed, so that no other process can take the run in
  // between.
  const std::string next = "job.yaml.next";
  FRESHET_RETURN_IF_ERROR(WriteFileAtomically(File(next), job_yaml));
  UniqueFd former = std::move(lock_);
  absl::Status status = Lock(next);
  if (status.ok() && ::rename(File(next).c_str(), File("job.yaml").c_str()) != 0) {
    status = WriteError(File("job.yaml"), errno);
  }
  if (status.ok()) return SyncPath(path_);
  lock_ = std::move(former);
  ::unlink(File(next).c_str());
  return status;
}

absl::Status RunFolder::Lock(const std::string& file) {
  UniqueFd fd(::open(File(file).c_str(), O_RDONLY | O_CLOEXEC));
  if (fd.get() < 0) return NotFound(File(file), ": ", std::strerror(errno));
  if (::flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
    return FailedPrecondition(path_, ": another process works in this run");
  }
  struct stat held {};
  struct stat named {};
  if (::fstat(fd.get(), &held) != 0 || ::stat(File(file).c_str(), &named) != 0 ||
      held.st_ino != named.st_ino) {
    return FailedPrecondition(path_, ": another process has just replaced ", file, "; try again");
  }
  lock_ = std::move(fd);
  return absl::OkStatus();
}

}  // namespace freshet
