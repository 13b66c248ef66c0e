#include "services/sandbox/isolation/file_access.h"

#include <fcntl.h>
#include <linux/landlock.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>

#include "base/status_macros.h"
#include "base/str_cat.h"

namespace freshet::sandbox {
namespace {

// Newer than some systems' headers. linux/landlock.h of Linux 6.12.
constexpr uint64_t kTruncate = 1ULL << 14;     // version 3
constexpr uint64_t kDeviceIoctl = 1ULL << 15;  // version 5
constexpr uint64_t kBindTcp = 1ULL << 0;       // version 4
constexpr uint64_t kConnectTcp = 1ULL << 1;
constexpr uint64_t kScopeAbstractSockets = 1ULL << 0;  // version 6
constexpr uint64_t kScopeSignals = 1ULL << 1;
struct Ruleset {
  uint64_t handled_access_fs = 0;
  uint64_t handled_access_net = 0;
  uint64_t scoped = 0;
};

constexpr uint64_t kReadFiles = LANDLOCK_ACCESS_FS_EXECUTE | LANDLOCK_ACCESS_FS_READ_FILE;
constexpr uint64_t kRead = kReadFiles | LANDLOCK_ACCESS_FS_READ_DIR;
constexpr uint64_t kVersion1 = (LANDLOCK_ACCESS_FS_MAKE_SYM << 1) - 1;  // all 13 rights

constexpr const char* kSystemPaths[] = {"/usr",
                                        "/lib",
                                        "/lib64",
                                        "/bin",
                                        "/sbin",
                                        "/etc/ld.so.cache",
                                        "/etc/alternatives",
                                        "/etc/localtime",
                                        "/etc/ssl/openssl.cnf",
                                        "/dev/full",
                                        "/dev/random",
                                        "/dev/urandom"};
constexpr char kNull[] = "/dev/null";

uint64_t AllRights(int version) {
  uint64_t rights = kVersion1;
  if (version >= 2) rights |= LANDLOCK_ACCESS_FS_REFER;
  if (version >= 3) rights |= kTruncate;
  if (version >= 5) rights |= kDeviceIoctl;
  return rights;
}

absl::Status Allow(int ruleset, int path, uint64_t rights) {
  struct stat about {};
  if (::fstat(path, &about) != 0) return Internal("fstat: ", std::strerror(errno));
  if (!S_ISDIR(about.st_mode)) {
    rights &= kReadFiles | LANDLOCK_ACCESS_FS_WRITE_FILE | kTruncate | kDeviceIoctl;
  }
  landlock_path_beneath_attr rule{};
  rule.allowed_access = rights;
  rule.parent_fd = path;
  if (::syscall(SYS_landlock_add_rule, ruleset, LANDLOCK_RULE_PATH_BENEATH, &rule, 0) != 0) {
    return Internal("Landlock rule: ", std::strerror(errno));
  }
  return absl::OkStatus();
}

absl::StatusOr<UniqueFd> OpenPath(const std::string& path) {
  UniqueFd file(::open(path.c_str(), O_PATH | O_CLOEXEC));
  if (file.get() < 0) return NotFound(path, ": ", std::strerror(errno));
  return file;
}

}  // namespace

int LandlockVersion() {
  const long version =
      ::syscall(SYS_landlock_create_ruleset, nullptr, size_t{0}, LANDLOCK_CREATE_RULESET_VERSION);
  return version < 0 ? 0 : static_cast<int>(version);
}

std::vector<std::string> SystemPaths() {
  std::vector<std::string> paths;
  for (const char* path : kSystemPaths) {
    if (::access(path, F_OK) == 0) paths.emplace_back(path);
  }
  return paths;
}

absl::StatusOr<FileRules> FileRules::Create(const std::vector<std::string>& readable) {
  FileRules rules(LandlockVersion());
  if (rules.version_ < 1) return absl::UnavailableError("the kernel has no Landlock");
  for (const std::string& path : readable) {
    FRESHET_ASSIGN_OR_RETURN(rules.readable_.emplace_back(), OpenPath(path));
  }
  FRESHET_ASSIGN_OR_RETURN(rules.null_, OpenPath(kNull));
  return rules;
}

absl::StatusOr<UniqueFd> FileRules::Make(const std::vector<PathAccess>& more) const {
  Ruleset wanted;
  wanted.handled_access_fs = AllRights(version_);
  size_t size = sizeof(uint64_t);
  if (version_ >= 4) {
    wanted.handled_access_net = kBindTcp | kConnectTcp;
    size = 2 * sizeof(uint64_t);
  }
  if (version_ >= 6) {
    wanted.scoped = kScopeAbstractSockets | kScopeSignals;
    size = sizeof(Ruleset);
  }
  UniqueFd ruleset(static_cast<int>(::syscall(SYS_landlock_create_ruleset, &wanted, size, 0)));
  if (ruleset.get() < 0) return Internal("Landlock: ", std::strerror(errno));
  for (const UniqueFd& path : readable_) {
    FRESHET_RETURN_IF_ERROR(Allow(ruleset.get(), path.get(), kRead));
  }
  const uint64_t all = wanted.handled_access_fs & ~kDeviceIoctl;
  for (const PathAccess& access : more) {
    FRESHET_RETURN_IF_ERROR(Allow(ruleset.get(), access.path, access.write ? all : kRead));
  }
  const uint64_t read_and_write = LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_WRITE_FILE;
  FRESHET_RETURN_IF_ERROR(Allow(ruleset.get(), null_.get(), all & (read_and_write | kTruncate)));
  return ruleset;
}

}  // namespace freshet::sandbox
