#ifndef FRESHET_SERVICES_SANDBOX_ISOLATION_SYSCALL_FILTER_H_
#define FRESHET_SERVICES_SANDBOX_ISOLATION_SYSCALL_FILTER_H_

#include <string>

#include "absl/status/statusor.h"

namespace freshet::sandbox {

// Who decides about new processes, threads and signals.
enum class Supervisor {
  kWorker,     // notifications
  kNamespace,  // a process namespace of the program's own; its first process gets no signals
};

// The seccomp filters of programs, as arrays of struct sock_filter.
struct SyscallFilters {
  // Allows what programs need to compute and to use files, threads and processes; whatever it does
  // not name fails with ENOSYS: sockets (but pairs), namespaces, mounts, ptrace, and access to
  // other processes. With Supervisor::kWorker, starting a process or thread, and sending a signal,
  // ask it (SECCOMP_RET_USER_NOTIF).
  std::string first;
  // Forbids what is needed to give the first one's notifications to the supervisor. With
  // kNamespace, also signals to process 1 and to all processes.
  std::string last;
};
// Whether the kernel has notifications of seccomp.
bool HasNotifications();

// INTERNAL: libseccomp cannot make them.
absl::StatusOr<SyscallFilters> MakeSyscallFilters(Supervisor supervisor);

}  // namespace freshet::sandbox

#endif  // FRESHET_SERVICES_SANDBOX_ISOLATION_SYSCALL_FILTER_H_
