#ifndef FRESHET_SERVICES_SANDBOX_WORKER_PROGRAM_FOLDER_H_
#define FRESHET_SERVICES_SANDBOX_WORKER_PROGRAM_FOLDER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/unique_fd.h"

namespace freshet::sandbox {

// What the files of a folder take.
struct FolderUse {
  int64_t bytes = 0;
  int64_t entries = 0;
};

// Whether `path` names a file inside a folder: relative, at most 255 bytes and 8 parts, without "."
// and "..". Pure.
bool IsInside(std::string_view path);

// Removes a folder with everything in it, also folders without permissions. Follows no links.
// Nothing else may change it meanwhile. INTERNAL: something is left.
absl::Status RemoveFolder(const std::string& path);

// A folder for one program, with a random name, removed with this object. What the program makes in
// it is never followed.
class ProgramFolder {
 public:
  // INTERNAL: it cannot be made.
  static absl::StatusOr<std::unique_ptr<ProgramFolder>> Create(const std::string& parent);
  ~ProgramFolder();

  const std::string& path() const { return path_; }
  int descriptor() const { return descriptor_.get(); }
  // Writes a file, with the folders that it needs. INVALID_ARGUMENT: not IsInside, or a part of the
  // path is a file.
  absl::Status Write(const std::string& path, std::string_view content) const;
  // NOT_FOUND: it is no regular file; RESOURCE_EXHAUSTED: larger than `most`; INVALID_ARGUMENT: not
  // IsInside.
  absl::StatusOr<std::string> Read(const std::string& path, int64_t most) const;
  // NOT_FOUND: it is no regular file.
  absl::Status MakeExecutable(const std::string& path) const;
  // INTERNAL: something is left.
  absl::Status Remove() const;
  // Stops counting at `most_entries`, and counts as many if folders are nested more than 64 deep,
  // or one cannot be listed.
  FolderUse Use(int64_t most_entries) const;

 private:
  ProgramFolder(std::string path, UniqueFd descriptor);

  const std::string path_;
  const UniqueFd descriptor_;
};

}  // namespace freshet::sandbox

#endif  // FRESHET_SERVICES_SANDBOX_WORKER_PROGRAM_FOLDER_H_
