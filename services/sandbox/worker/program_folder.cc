#include "services/sandbox/worker/program_folder.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "base/str_cat.h"

namespace freshet::sandbox {
namespace {

constexpr size_t kMaxPathBytes = 255;
constexpr size_t kMaxParts = 8;
constexpr int kMaxDepth = 64;

// Opens a path below the folder without following links.
UniqueFd OpenBelow(int folder, const std::string& path, uint64_t flags, uint64_t mode) {
  open_how how{};
  how.flags = flags | O_CLOEXEC | O_NOFOLLOW;
  how.mode = mode;
  how.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS;
  return UniqueFd(
      static_cast<int>(::syscall(SYS_openat2, folder, path.c_str(), &how, sizeof(how))));
}

absl::Status WriteAll(int file, std::string_view content, const std::string& path) {
  while (!content.empty()) {
    const ssize_t written = ::write(file, content.data(), content.size());
    if (written < 0) return Internal(path, ": ", std::strerror(errno));
    content.remove_prefix(static_cast<size_t>(written));
  }
  return absl::OkStatus();
}

// From errno: whether the path is to blame, or this machine.
absl::Status WriteError(const std::string& path) {
  const int error = errno;
  const bool bad = error == ENOTDIR || error == EISDIR || error == ELOOP || error == EEXIST ||
                   error == ENAMETOOLONG || error == EXDEV;
  return StatusOf(bad ? absl::StatusCode::kInvalidArgument : absl::StatusCode::kInternal, "file ",
                  path, ": ", std::strerror(error));
}

// Removes a file, or a folder with everything in it. A folder without permissions hides what is in
// it from its own owner, so it gets them first.
bool RemoveBelow(int parent, const char* name) {
  struct stat about {};
  if (::fstatat(parent, name, &about, AT_SYMLINK_NOFOLLOW) != 0) return errno == ENOENT;
  if (!S_ISDIR(about.st_mode)) return ::unlinkat(parent, name, 0) == 0;
  (void)::fchmodat(parent, name, 0700, 0);
  const int folder = ::openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  DIR* list = folder < 0 ? nullptr : ::fdopendir(folder);
  if (list == nullptr) {
    if (folder >= 0) ::close(folder);
    return false;
  }
  bool removed = true;
  while (const dirent* entry = ::readdir(list)) {
    const std::string_view below = entry->d_name;
    if (below != "." && below != "..") removed &= RemoveBelow(::dirfd(list), entry->d_name);
  }
  ::closedir(list);
  return removed && ::unlinkat(parent, name, AT_REMOVEDIR) == 0;
}

void AddUse(int folder, int64_t most_entries, int depth, FolderUse& use) {
  DIR* list = ::fdopendir(folder);
  if (list == nullptr) {
    ::close(folder);
    return;
  }
  while (const dirent* entry = ::readdir(list)) {
    const std::string_view name = entry->d_name;
    if (name == "." || name == "..") continue;
    if (use.entries >= most_entries) break;
    ++use.entries;
    struct stat about {};
    if (::fstatat(::dirfd(list), entry->d_name, &about, AT_SYMLINK_NOFOLLOW) != 0) continue;
    use.bytes += about.st_blocks * 512;
    if (!S_ISDIR(about.st_mode)) continue;
    if (depth == kMaxDepth) {
      use.entries = most_entries;
      break;
    }
    const int below =
        ::openat(::dirfd(list), entry->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (below >= 0) {
      AddUse(below, most_entries, depth + 1, use);
    } else if (errno != ENOENT) {
      use.entries = most_entries;  // what it holds cannot be measured
    }
  }
  ::closedir(list);
}

}  // namespace

bool IsInside(std::string_view path) {
  if (path.empty() || path.size() > kMaxPathBytes || path.find('\0') != std::string_view::npos) {
    return false;
  }
  for (size_t parts = 1;; ++parts) {
    const size_t slash = path.find('/');
    const std::string_view part = path.substr(0, slash);
    if (part.empty() || part == "." || part == ".." || parts > kMaxParts) return false;
    if (slash == std::string_view::npos) return true;
    path.remove_prefix(slash + 1);
  }
}

absl::StatusOr<std::unique_ptr<ProgramFolder>> ProgramFolder::Create(const std::string& parent) {
  std::string path = parent + "/program-XXXXXX";
  if (::mkdtemp(path.data()) == nullptr) return Internal(path, ": ", std::strerror(errno));
  UniqueFd descriptor(::open(path.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (descriptor.get() < 0) return Internal(path, ": ", std::strerror(errno));
  return std::unique_ptr<ProgramFolder>(new ProgramFolder(std::move(path), std::move(descriptor)));
}

ProgramFolder::ProgramFolder(std::string path, UniqueFd descriptor)
    : path_(std::move(path)), descriptor_(std::move(descriptor)) {}

ProgramFolder::~ProgramFolder() { (void)Remove(); }

absl::Status ProgramFolder::Remove() const { return RemoveFolder(path_); }

absl::Status RemoveFolder(const std::string& path) {
  if (RemoveBelow(AT_FDCWD, path.c_str())) return absl::OkStatus();
  return Internal(path, " cannot be removed: ", std::strerror(errno));
}

absl::Status ProgramFolder::Write(const std::string& path, std::string_view content) const {
  if (!IsInside(path)) return InvalidArgument("file ", path, " is not inside the program's folder");
  for (size_t slash = path.find('/'); slash != std::string::npos;
       slash = path.find('/', slash + 1)) {
    if (::mkdirat(descriptor(), path.substr(0, slash).c_str(), 0700) != 0 && errno != EEXIST) {
      return WriteError(path);
    }
  }
  const UniqueFd file = OpenBelow(descriptor(), path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
  if (file.get() < 0) return WriteError(path);
  return WriteAll(file.get(), content, path);
}

absl::StatusOr<std::string> ProgramFolder::Read(const std::string& path, int64_t most) const {
  if (!IsInside(path)) return InvalidArgument("file ", path, " is not inside the program's folder");
  // Opening a pipe without a writer must not wait.
  const UniqueFd file = OpenBelow(descriptor(), path, O_RDONLY | O_NONBLOCK, 0);
  struct stat about {};
  if (file.get() < 0 || ::fstat(file.get(), &about) != 0 || !S_ISREG(about.st_mode)) {
    return NotFound("the program has left no file ", path);
  }
  if (about.st_size > most) {
    return ResourceExhausted("file ", path, " has ", about.st_size, " bytes, more than ", most);
  }
  std::string content(static_cast<size_t>(about.st_size), '\0');
  const ssize_t got = ::pread(file.get(), content.data(), content.size(), 0);
  content.resize(got < 0 ? 0 : static_cast<size_t>(got));
  return content;
}

absl::Status ProgramFolder::MakeExecutable(const std::string& path) const {
  const UniqueFd file = OpenBelow(descriptor(), path, O_RDONLY | O_NONBLOCK, 0);
  struct stat about {};
  if (file.get() < 0 || ::fstat(file.get(), &about) != 0 || !S_ISREG(about.st_mode) ||
      ::fchmod(file.get(), 0700) != 0) {
    return NotFound("the compiler has left no file ", path);
  }
  return absl::OkStatus();
}

FolderUse ProgramFolder::Use(int64_t most_entries) const {
  FolderUse use;
  const int folder = ::openat(descriptor(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder < 0) return {0, most_entries};  // what it holds cannot be measured
  AddUse(folder, most_entries, 0, use);
  return use;
}

}  // namespace freshet::sandbox
