#include "services/sandbox/service/work_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <optional>
#include <system_error>

#include "base/log.h"
#include "base/status_macros.h"
#include "base/str_cat.h"
#include "services/sandbox/worker/program_folder.h"

namespace freshet::sandbox {
namespace {

constexpr std::string_view kPrefix = "freshet-sandbox.";
constexpr int kTries = 10;  // another process may remove a folder before it is locked

// The lock of a folder of this user at this path; none if it is not one, or another process has it.
std::optional<UniqueFd> LockFolder(const std::string& path) {
  UniqueFd folder(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  struct stat opened {};
  struct stat there {};
  if (folder.get() < 0 || ::fstat(folder.get(), &opened) != 0 || opened.st_uid != ::geteuid() ||
      ::flock(folder.get(), LOCK_EX | LOCK_NB) != 0) {
    return std::nullopt;
  }
  if (::lstat(path.c_str(), &there) != 0 || there.st_ino != opened.st_ino ||
      there.st_dev != opened.st_dev) {
    return std::nullopt;
  }
  return folder;
}

void RemoveLeftOvers(const std::string& parent) {
  std::error_code failed;
  for (std::filesystem::directory_iterator entry(parent, failed), end; !failed && entry != end;
       entry.increment(failed)) {
    const std::string path = entry->path().string();
    if (!entry->path().filename().string().starts_with(kPrefix)) continue;
    const std::optional<UniqueFd> lock = LockFolder(path);
    if (!lock.has_value()) continue;
    const absl::Status removed = RemoveFolder(path);
    FRESHET_LOG(Info) << "event=sandbox_folder_removed folder=" << path << " reason="
                      << LogQuoted(removed.ok() ? "its process has ended" : Message(removed));
  }
}

absl::Status Failure(const std::string& path, std::string_view why) {
  return FailedPrecondition("--folder ", path, ": ", why);
}

// Other users may pass, but not list it.
absl::StatusOr<std::string> Opened(const std::string& path) {
  std::error_code failed;
  const std::string full = std::filesystem::canonical(path, failed).string();
  if (failed) return Failure(path, failed.message());
  if (::chmod(path.c_str(), 0711) != 0) return Failure(path, std::strerror(errno));
  return full;
}

}  // namespace

absl::StatusOr<std::unique_ptr<WorkFolder>> WorkFolder::Create(const std::string& given,
                                                               const std::string& parent) {
  if (!given.empty()) {
    std::error_code failed;
    std::filesystem::create_directories(given, failed);
    if (failed) return Failure(given, failed.message());
    FRESHET_ASSIGN_OR_RETURN(std::string path, Opened(given));
    return std::make_unique<WorkFolder>(std::move(path), UniqueFd());
  }
  RemoveLeftOvers(parent);
  for (int i = 0; i < kTries; ++i) {
    std::string path = StrCat(parent, "/", kPrefix, "XXXXXX");
    if (::mkdtemp(path.data()) == nullptr) return Failure(path, std::strerror(errno));
    std::optional<UniqueFd> lock = LockFolder(path);
    if (!lock.has_value()) continue;
    FRESHET_ASSIGN_OR_RETURN(path, Opened(path));
    return std::make_unique<WorkFolder>(std::move(path), *std::move(lock));
  }
  return Failure(parent, "a folder in it cannot be locked");
}

WorkFolder::~WorkFolder() {
  if (lock_.get() < 0) return;
  const absl::Status removed = RemoveFolder(path_);
  if (!removed.ok()) {
    FRESHET_LOG(Warning) << "event=sandbox_folder_left folder=" << path_
                         << " reason=" << LogQuoted(Message(removed));
  }
}

}  // namespace freshet::sandbox
