#ifndef FRESHET_SERVICES_SANDBOX_ISOLATION_OWN_NAMESPACES_H_
#define FRESHET_SERVICES_SANDBOX_ISOLATION_OWN_NAMESPACES_H_

#include "services/sandbox/isolation/confine.h"

namespace freshet::sandbox {

// Sends what failed, with errno, to the worker, and ends the process.
[[noreturn]] void Fail(int control, const char* what);

// Moves the program into its own user, process, mount, network, IPC and UTS namespaces, without
// capabilities. It sees only `root`, `folder` (its working folder) and `built`. Returns in a
// grandchild. The child is process 1 of the namespace: on SIGTERM it kills all others and waits for
// them. The calling process never returns; it ends with the grandchild's exit code or signal. Calls
// Fail on any error. Uses the C library only.
void EnterOwnNamespaces(int control, const FreshetConfinement& confinement);

}  // namespace freshet::sandbox

#endif  // FRESHET_SERVICES_SANDBOX_ISOLATION_OWN_NAMESPACES_H_
