#include "services/sandbox/isolation/root_folder.h"

#include <fcntl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <utility>

#include "base/status_macros.h"
#include "base/str_cat.h"
#include "base/unique_fd.h"
#include "services/sandbox/isolation/root_paths.h"

namespace freshet::sandbox {
namespace {

constexpr mode_t kUnlisted = 0111;

absl::Status Refused(std::string_view what, std::string_view hint = "") {
  return StatusOf(absl::StatusCode::kUnavailable, "mounting ", what, ": ", std::strerror(errno),
                  hint);
}

// Makes the folders above `path` below `root`.
absl::Status MakeFoldersAbove(const std::string& root, const std::string& path) {
  for (size_t slash = path.find('/', 1); slash != std::string::npos;
       slash = path.find('/', slash + 1)) {
    const std::string folder = root + path.substr(0, slash);
    if (::mkdir(folder.c_str(), 0755) != 0 && errno != EEXIST) return Refused(folder);
  }
  return absl::OkStatus();
}

absl::Status MakePlace(const std::string& place, bool folder) {
  if (folder) {
    return ::mkdir(place.c_str(), kUnlisted) == 0 || errno == EEXIST ? absl::OkStatus()
                                                                     : Refused(place);
  }
  const UniqueFd file(::open(place.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0400));
  return file.get() >= 0 ? absl::OkStatus() : Refused(place);
}

// Mounts `path` below `root`, read-only. Devices stay usable.
absl::Status Show(const std::string& root, const std::string& path) {
  struct stat about {};
  if (::stat(path.c_str(), &about) != 0) return NotFound(path, ": ", std::strerror(errno));
  const std::string place = root + path;
  FRESHET_RETURN_IF_ERROR(MakeFoldersAbove(root, path));
  FRESHET_RETURN_IF_ERROR(MakePlace(place, S_ISDIR(about.st_mode)));
  struct statvfs mounted {};
  if (::mount(path.c_str(), place.c_str(), nullptr, MS_BIND, nullptr) != 0) {
    // A user namespace may not show what another one's mounts cover.
    return errno == EINVAL ? Refused(path, "; is something mounted below it?") : Refused(path);
  }
  if (::statvfs(place.c_str(), &mounted) != 0 ||
      ::mount(nullptr, place.c_str(), nullptr,
              MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | KeptMountFlags(mounted.f_flag),
              nullptr) != 0) {
    return Refused(path);
  }
  return absl::OkStatus();
}

// Takes the right to list the folders that were made above `path`.
absl::Status HideFoldersAbove(const std::string& root, const std::string& path) {
  for (size_t slash = path.find('/', 1); slash != std::string::npos;
       slash = path.find('/', slash + 1)) {
    const std::string folder = root + path.substr(0, slash);
    if (::chmod(folder.c_str(), kUnlisted) != 0) return Refused(folder);
  }
  return absl::OkStatus();
}

}  // namespace

std::vector<std::string> WithoutNested(std::vector<std::string> paths) {
  std::ranges::sort(paths);
  std::vector<std::string> kept;
  for (std::string& path : paths) {
    const bool nested = std::ranges::any_of(kept, [&path](const std::string& outer) {
      return path == outer || path.starts_with(outer + "/");
    });
    if (!nested) kept.push_back(std::move(path));
  }
  return kept;
}

absl::Status MakeRootFolder(const std::string& root, const std::vector<std::string>& readable) {
  std::vector<std::string> wanted = {"/dev/null"};
  wanted.reserve(2 * readable.size() + 1);
  for (const std::string& path : readable) {
    // A path with links is shown where it is, and where the links lead.
    std::error_code failed;
    std::string target = std::filesystem::canonical(path, failed).string();
    if (failed) return NotFound(path, ": ", failed.message());
    std::string plain = std::filesystem::path(path).lexically_normal().string();
    if (plain.ends_with('/')) plain.pop_back();
    if (plain.empty() || plain.front() != '/' || target == "/") {
      return InvalidArgument("programs cannot be allowed to read ", path, " with namespaces");
    }
    wanted.push_back(std::move(target));
    wanted.push_back(std::move(plain));
  }
  const std::vector<std::string> shown = WithoutNested(std::move(wanted));
  if (::mkdir(root.c_str(), 0700) != 0 && errno != EEXIST) return Refused(root);
  if (::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0)
    return Refused("/ as private");
  if (::mount("tmpfs", root.c_str(), "tmpfs", MS_NOSUID | MS_NODEV, "mode=0755,size=1m") != 0) {
    return Refused(root);
  }
  for (const std::string& path : shown) FRESHET_RETURN_IF_ERROR(Show(root, path));
  for (const char* place : {kProgramFolder, kBuiltFolder, kOldRoot}) {
    FRESHET_RETURN_IF_ERROR(MakePlace(root + place, /*folder=*/true));
  }
  for (const std::string& path : shown) FRESHET_RETURN_IF_ERROR(HideFoldersAbove(root, path));
  if (::chmod(root.c_str(), kUnlisted) != 0 ||
      ::mount(nullptr, root.c_str(), nullptr,
              MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | MS_NODEV, nullptr) != 0) {
    return Refused(root);
  }
  return absl::OkStatus();
}

}  // namespace freshet::sandbox
