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

// Logs why it cannot.
bool Remove(const std::string& path) {
  const absl::Status removed = RemoveFolder(path);
  if (!removed.ok()) {
    FRESHET_LOG(Warning) << "event=sandbox_folder_left folder=" << path
                         << " reason=" << LogQuoted(Message(removed));
  }
  return removed.ok();
}

void RemoveLeftOvers(const std::string& parent) {
  std::error_code failed;
  for (std::filesystem::directory_iterator entry(parent, failed), end; !failed && entry != end;
       entry.increment(failed)) {
    const std::string path = entry->path().string();
    if (!entry->path().filename().string().starts_with(kPrefix)) continue;
    const std::optional<UniqueFd> lock = LockFolder(path);
    if (!lock.has_value()) continue;
    if (!Remove(path)) continue;
    FRESHET_LOG(Info) << "event=sandbox_folder_removed folder=" << path
                      << " reason=" << LogQuoted("its process has ended");
  }
}

absl::Status Failure(const std::string& given, std::string_view why) {
  return FailedPrecondition("--folder ", given, ": ", why);
}

absl::Status TemporaryFailure(const std::string& parent, std::string_view why) {
  return FailedPrecondition(parent, ": no temporary folder can be made in it: ", why,
                            "; name another with --folder");
}

// Other users may pass, but not list it. Errors are without the path.
absl::StatusOr<std::string> Opened(const std::string& path) {
  std::error_code failed;
  const std::string full = std::filesystem::canonical(path, failed).string();
  if (failed) return FailedPrecondition(failed.message());
  if (::chmod(path.c_str(), 0711) != 0) return FailedPrecondition(std::strerror(errno));
  return full;
}

}  // namespace

absl::StatusOr<std::unique_ptr<WorkFolder>> WorkFolder::Create(const std::string& given,
                                                               const std::string& parent) {
  if (!given.empty()) {
    std::error_code failed;
    std::filesystem::create_directories(given, failed);
    if (failed) return Failure(given, failed.message());
    absl::StatusOr<std::string> path = Opened(given);
    if (!path.ok()) return Failure(given, Message(path.status()));
    return std::make_unique<WorkFolder>(*std::move(path), UniqueFd());
  }
  RemoveLeftOvers(parent);
  for (int i = 0; i < kTries; ++i) {
    std::string path = StrCat(parent, "/", kPrefix, "XXXXXX");
    if (::mkdtemp(path.data()) == nullptr) return TemporaryFailure(parent, std::strerror(errno));
    std::optional<UniqueFd> lock = LockFolder(path);
    if (!lock.has_value()) continue;
    absl::StatusOr<std::string> full = Opened(path);
    if (!full.ok()) return TemporaryFailure(parent, Message(full.status()));
    return std::make_unique<WorkFolder>(*std::move(full), *std::move(lock));
  }
  return TemporaryFailure(parent, "it cannot be locked");
}

WorkFolder::~WorkFolder() {
  if (lock_.get() >= 0) Remove(path_);
}

}  // namespace freshet::sandbox
