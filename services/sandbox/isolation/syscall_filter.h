#ifndef FRESHET_SERVICES_SANDBOX_ISOLATION_SYSCALL_FILTER_H_
#define FRESHET_SERVICES_SANDBOX_ISOLATION_SYSCALL_FILTER_H_

#include <string>

#include "absl/status/statusor.h"

namespace freshet::sandbox {

// The seccomp filter of programs, as an array of struct sock_filter. It allows what programs need
// to compute and to use files, threads and processes; whatever it does not name fails with ENOSYS:
// sockets (but pairs), namespaces, mounts, ptrace, and access to other processes. Starting a
// process or thread, and sending a signal, ask the supervisor (SECCOMP_RET_USER_NOTIF). INTERNAL:
// libseccomp cannot make it.
absl::StatusOr<std::string> MakeSyscallFilter();

}  // namespace freshet::sandbox

#endif  // FRESHET_SERVICES_SANDBOX_ISOLATION_SYSCALL_FILTER_H_
