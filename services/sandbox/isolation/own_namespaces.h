#ifndef FRESHET_SERVICES_SANDBOX_ISOLATION_OWN_NAMESPACES_H_
#define FRESHET_SERVICES_SANDBOX_ISOLATION_OWN_NAMESPACES_H_

#include "services/sandbox/isolation/confine.h"

namespace freshet::sandbox {

// Sends what failed, with errno, to the worker, and ends the process.
[[noreturn]] void Fail(int control, const char* what);

// Gives a program user, process, mount, network, IPC and host name namespaces of its own, without
// capabilities, in which it sees only `root`, `folder` and `built` of the confinement, in the
// folder. Returns in a grandchild of this process. Its parent is the first process of the process
// namespace, with whose end the kernel ends all processes in it; SIGTERM makes it end them and wait
// for them first. This process ends as the
// grandchild ends: with its exit code or signal. Ends with Fail if anything is refused. Depends on
// the C library only.
void EnterOwnNamespaces(int control, const FreshetConfinement& confinement);

}  // namespace freshet::sandbox

#endif  // FRESHET_SERVICES_SANDBOX_ISOLATION_OWN_NAMESPACES_H_
