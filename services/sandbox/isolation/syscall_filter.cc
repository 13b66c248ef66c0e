#include "services/sandbox/isolation/syscall_filter.h"

#include <fcntl.h>
#include <linux/sched.h>
#include <linux/seccomp.h>
#include <seccomp.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "base/status_macros.h"
#include "base/str_cat.h"
#include "base/unique_fd.h"

namespace freshet::sandbox {
namespace {

constexpr const char* kAllowed[] = {
    // Memory.
    "brk", "madvise", "membarrier", "mincore", "mlock", "mprotect", "mremap", "msync", "munlock",
    "munmap", "pkey_alloc", "pkey_free", "pkey_mprotect",
    // Descriptors and files.
    "access", "chdir", "close", "close_range", "copy_file_range", "creat", "dup", "dup2", "dup3",
    "faccessat", "faccessat2", "fadvise64", "fchdir", "fchmod", "fdatasync", "fgetxattr",
    "flistxattr", "flock", "fstat", "fstatfs", "fsync", "ftruncate", "getcwd", "getdents",
    "getdents64", "getxattr", "lgetxattr", "link", "linkat", "listxattr", "llistxattr", "lseek",
    "lstat", "mkdir", "mkdirat", "newfstatat", "open", "openat", "openat2", "pipe", "pipe2",
    "pread64", "preadv", "preadv2", "pwrite64", "pwritev", "pwritev2", "read", "readahead",
    "readlink", "readlinkat", "readv", "rename", "renameat", "renameat2", "rmdir", "sendfile",
    "splice", "stat", "statfs", "statx", "symlink", "symlinkat", "sync_file_range", "umask",
    "unlink", "unlinkat", "write", "writev",
    // Waiting.
    "epoll_create", "epoll_create1", "epoll_ctl", "epoll_pwait", "epoll_pwait2", "epoll_wait",
    "eventfd", "eventfd2", "pause", "poll", "ppoll", "pselect6", "select", "signalfd", "signalfd4",
    // Pairs of sockets, for event loops.
    "getpeername", "getsockname", "getsockopt", "recvfrom", "recvmmsg", "recvmsg", "sendto",
    "shutdown",
    // Time.
    "alarm", "clock_getres", "clock_gettime", "clock_nanosleep", "getitimer", "gettimeofday",
    "nanosleep", "setitimer", "time", "timer_create", "timer_delete", "timer_getoverrun",
    "timer_gettime", "timer_settime", "timerfd_create", "timerfd_gettime", "timerfd_settime",
    "times",
    // Threads, signals and the process itself.
    "arch_prctl", "capget", "execve", "execveat", "exit", "exit_group", "futex", "futex_waitv",
    "getcpu", "getegid", "geteuid", "getgid", "getgroups", "getpgid", "getpgrp", "getpid",
    "getppid", "getpriority", "getrandom", "getresgid", "getresuid", "getrlimit", "getrusage",
    "getsid", "gettid", "getuid", "restart_syscall", "rseq", "rt_sigaction", "rt_sigpending",
    "rt_sigprocmask", "rt_sigreturn", "rt_sigsuspend", "rt_sigtimedwait", "sched_get_priority_max",
    "sched_get_priority_min", "sched_getaffinity", "sched_getattr", "sched_getparam",
    "sched_getscheduler", "sched_rr_get_interval", "sched_yield", "set_robust_list",
    "set_tid_address", "setpgid", "setrlimit", "setsid", "sigaltstack", "sysinfo", "uname", "wait4",
    "waitid"};

constexpr uint64_t kNamespaces = CLONE_NEWNS | CLONE_NEWCGROUP | CLONE_NEWUTS | CLONE_NEWIPC |
                                 CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWTIME;
// Neither another namespace, nor a sibling, which would belong to the worker.
constexpr uint64_t kForbiddenClone = kNamespaces | CLONE_PARENT;
// A thread must share its descriptors with the others, so that the worker sees them.
constexpr uint64_t kThread = CLONE_THREAD | CLONE_FILES;

// The kernel ignores the upper half of these arguments.
constexpr uint64_t kLowHalf = 0xFFFFFFFF;
// Without PR_SET_DUMPABLE and PR_SET_PDEATHSIG: the worker must see the descriptors of its
// programs, and they must end with it.
constexpr uint64_t kProcessOptions[] = {
    PR_GET_DUMPABLE,    PR_SET_NAME,        PR_GET_NAME,         PR_CAPBSET_READ,
    PR_SET_TIMERSLACK,  PR_GET_TIMERSLACK,  PR_SET_NO_NEW_PRIVS, PR_GET_NO_NEW_PRIVS,
    PR_GET_TID_ADDRESS, PR_SET_THP_DISABLE, PR_GET_THP_DISABLE,  PR_SET_VMA};
// Without those that let a descriptor send signals.
constexpr uint64_t kFileCommands[] = {
    F_DUPFD,  F_GETFD,     F_SETFD,     F_GETFL,      F_SETFL,         F_GETLK,     F_SETLK,
    F_SETLKW, F_OFD_GETLK, F_OFD_SETLK, F_OFD_SETLKW, F_DUPFD_CLOEXEC, F_GETPIPE_SZ};
constexpr uint64_t kDeviceRequests[] = {TCGETS,  TIOCGWINSZ, TIOCGPGRP, FIONREAD,
                                        FIONBIO, FIOCLEX,    FIONCLEX};
// Not both: shared memory without a file is not measured once it is unmapped.
constexpr uint64_t kSharedMemory = MAP_SHARED | MAP_ANONYMOUS;
constexpr uint64_t kSocketType = 0xF;

scmp_arg_cmp Compare(unsigned argument, scmp_compare comparison, uint64_t value) {
  return {argument, comparison, value, 0};
}
// Whether (argument & mask) == value.
scmp_arg_cmp Masked(unsigned argument, uint64_t mask, uint64_t value) {
  return {argument, SCMP_CMP_MASKED_EQ, mask, value};
}

struct ReleaseFilter {
  void operator()(void* filter) const { seccomp_release(filter); }
};

// Adds rules, and remembers the first that libseccomp refused.
class Rules {
 public:
  explicit Rules(scmp_filter_ctx filter) : filter_(filter) {}

  // If all of `comparisons` hold.
  void Add(uint32_t action, const char* name, std::vector<scmp_arg_cmp> comparisons = {}) {
    const int number = seccomp_syscall_resolve_name(name);
    const int failed =
        number == __NR_SCMP_ERROR
            ? -EINVAL
            : seccomp_rule_add_array(filter_, action, number,
                                     static_cast<unsigned>(comparisons.size()), comparisons.data());
    if (failed != 0 && status_.ok()) {
      status_ = Internal("seccomp rule for ", name, ": ", std::strerror(-failed));
    }
  }
  const absl::Status& status() const { return status_; }

 private:
  scmp_filter_ctx filter_;
  absl::Status status_;
};

absl::StatusOr<std::string> Export(scmp_filter_ctx filter) {
  const UniqueFd file(::memfd_create("filter", MFD_CLOEXEC));
  if (const int failed = seccomp_export_bpf(filter, file.get()); failed != 0) {
    return Internal("seccomp_export_bpf: ", std::strerror(-failed));
  }
  std::string program(static_cast<size_t>(::lseek(file.get(), 0, SEEK_END)), '\0');
  if (::pread(file.get(), program.data(), program.size(), 0) !=
      static_cast<ssize_t>(program.size())) {
    return Internal("reading the seccomp filter: ", std::strerror(errno));
  }
  return program;
}

// What only FreshetConfine needs.
constexpr const char* kForSupervision[] = {"seccomp", "sendmsg"};

absl::StatusOr<std::string> MakeLastFilter(Supervisor supervisor) {
  const std::unique_ptr<void, ReleaseFilter> filter(seccomp_init(SCMP_ACT_ALLOW));
  if (filter == nullptr) return Internal("seccomp_init failed");
  Rules rules(filter.get());
  for (const char* name : kForSupervision) rules.Add(SCMP_ACT_ERRNO(ENOSYS), name);
  if (supervisor == Supervisor::kNamespace) {
    for (const char* name : {"kill", "tkill", "tgkill"}) {
      // The first process of the namespace, and all processes.
      for (const uint64_t target : {uint64_t{1}, kLowHalf}) {
        rules.Add(SCMP_ACT_ERRNO(EPERM), name, {Masked(0, kLowHalf, target)});
      }
    }
  }
  FRESHET_RETURN_IF_ERROR(rules.status());
  return Export(filter.get());
}

absl::StatusOr<std::string> MakeFirstFilter(Supervisor supervisor) {
  const std::unique_ptr<void, ReleaseFilter> filter(seccomp_init(SCMP_ACT_ERRNO(ENOSYS)));
  if (filter == nullptr) return Internal("seccomp_init failed");
  // A tree, not a list of comparisons.
  if (seccomp_attr_set(filter.get(), SCMP_FLTATR_CTL_OPTIMIZE, 2) != 0) {
    return Internal("SCMP_FLTATR_CTL_OPTIMIZE");
  }
  Rules rules(filter.get());
  for (const char* name : kAllowed) rules.Add(SCMP_ACT_ALLOW, name);
  for (const char* name : kForSupervision) rules.Add(SCMP_ACT_ALLOW, name);
  // Datagrams could be sent to other sockets.
  for (const uint64_t type : {SOCK_STREAM, SOCK_SEQPACKET}) {
    rules.Add(SCMP_ACT_ALLOW, "socketpair",
              {Compare(0, SCMP_CMP_EQ, AF_UNIX), Masked(1, kSocketType, type)});
  }
  for (const uint64_t option : kProcessOptions) {
    rules.Add(SCMP_ACT_ALLOW, "prctl", {Masked(0, kLowHalf, option)});
  }
  for (const uint64_t command : kFileCommands) {
    rules.Add(SCMP_ACT_ALLOW, "fcntl", {Masked(1, kLowHalf, command)});
  }
  for (const uint64_t request : kDeviceRequests) {
    rules.Add(SCMP_ACT_ALLOW, "ioctl", {Masked(1, kLowHalf, request)});
  }
  for (const uint64_t kind : {uint64_t{0}, uint64_t{MAP_SHARED}, uint64_t{MAP_ANONYMOUS}}) {
    rules.Add(SCMP_ACT_ALLOW, "mmap", {Masked(3, kSharedMemory, kind)});
  }
  // Landlock does not cover these: by path they have no effect, and by descriptor they are allowed.
  for (const char* name : {"chmod", "fchmodat", "utime", "utimes", "futimesat"}) {
    rules.Add(SCMP_ACT_ERRNO(0), name);
  }
  rules.Add(SCMP_ACT_ALLOW, "utimensat", {Compare(1, SCMP_CMP_EQ, 0)});
  rules.Add(SCMP_ACT_ERRNO(0), "utimensat", {Compare(1, SCMP_CMP_NE, 0)});
  rules.Add(SCMP_ACT_ALLOW, "mknod", {Masked(1, S_IFMT, S_IFIFO)});
  rules.Add(SCMP_ACT_ALLOW, "mknodat", {Masked(2, S_IFMT, S_IFIFO)});
  // Fills the folder faster than it is measured; the C library then writes zeros.
  rules.Add(SCMP_ACT_ERRNO(EOPNOTSUPP), "fallocate");
  // Limits and processors of the process itself.
  rules.Add(SCMP_ACT_ALLOW, "prlimit64", {Compare(0, SCMP_CMP_EQ, 0)});
  rules.Add(SCMP_ACT_ALLOW, "sched_setaffinity", {Compare(0, SCMP_CMP_EQ, 0)});
  // PER_LINUX, and the question which one is in force.
  rules.Add(SCMP_ACT_ALLOW, "personality", {Compare(0, SCMP_CMP_EQ, 0)});
  rules.Add(SCMP_ACT_ALLOW, "personality", {Compare(0, SCMP_CMP_EQ, 0xFFFFFFFF)});
  const uint32_t ask = supervisor == Supervisor::kWorker ? SCMP_ACT_NOTIFY : SCMP_ACT_ALLOW;
  rules.Add(ask, "clone", {Masked(0, kForbiddenClone | CLONE_THREAD, 0)});
  rules.Add(ask, "clone", {Masked(0, kForbiddenClone | kThread, kThread)});
  for (const char* name : {"fork", "vfork", "kill", "tkill", "tgkill"}) rules.Add(ask, name);
  FRESHET_RETURN_IF_ERROR(rules.status());
  return Export(filter.get());
}

}  // namespace

bool HasNotifications() {
  seccomp_notif_sizes sizes{};
  return ::syscall(SYS_seccomp, SECCOMP_GET_NOTIF_SIZES, 0, &sizes) == 0;
}

absl::StatusOr<SyscallFilters> MakeSyscallFilters(Supervisor supervisor) {
  SyscallFilters filters;
  FRESHET_ASSIGN_OR_RETURN(filters.first, MakeFirstFilter(supervisor));
  FRESHET_ASSIGN_OR_RETURN(filters.last, MakeLastFilter(supervisor));
  return filters;
}

}  // namespace freshet::sandbox
