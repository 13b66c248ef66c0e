#include "services/sandbox/isolation/namespaces.h"

#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "base/status_macros.h"
#include "base/str_cat.h"
#include "base/unique_fd.h"

namespace freshet::sandbox {
namespace {

absl::Status Unavailable(const char* what) {
  return StatusOf(absl::StatusCode::kUnavailable, what, ": ", std::strerror(errno));
}

absl::Status WriteText(const char* path, const std::string& text) {
  const UniqueFd file(::open(path, O_WRONLY | O_CLOEXEC));
  if (file.get() < 0 ||
      ::write(file.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size())) {
    return Unavailable(path);
  }
  return absl::OkStatus();
}

absl::Status Enter(int more) {
  const uid_t user = ::geteuid();
  const gid_t group = ::getegid();
  if (::unshare(CLONE_NEWUSER | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS | more) != 0) {
    return Unavailable("unshare");
  }
  FRESHET_RETURN_IF_ERROR(WriteText("/proc/self/setgroups", "deny"));
  FRESHET_RETURN_IF_ERROR(WriteText("/proc/self/uid_map", StrCat(user, " ", user, " 1")));
  return WriteText("/proc/self/gid_map", StrCat(group, " ", group, " 1"));
}

}  // namespace

absl::Status BecomeUser(unsigned user) {
  if (::setgroups(0, nullptr) != 0 || ::setresgid(user, user, user) != 0 ||
      ::setresuid(user, user, user) != 0) {
    return Internal("becoming user ", user, ": ", std::strerror(errno));
  }
  // Otherwise its files in /proc belong to root.
  if (::prctl(PR_SET_DUMPABLE, 1, 0, 0, 0) != 0) return Internal("PR_SET_DUMPABLE");
  return absl::OkStatus();
}

absl::Status EnterNamespaces() {
  FRESHET_RETURN_IF_ERROR(Enter(0));
  return DropCapabilities();
}

absl::Status EnterMountNamespace() { return Enter(CLONE_NEWNS); }

absl::Status DropCapabilities() {
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct none[_LINUX_CAPABILITY_U32S_3] = {};
  if (::syscall(SYS_capset, &header, none) != 0) return Internal("capset: ", std::strerror(errno));
  return absl::OkStatus();
}

}  // namespace freshet::sandbox
