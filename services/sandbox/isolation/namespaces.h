#ifndef FRESHET_SERVICES_SANDBOX_ISOLATION_NAMESPACES_H_
#define FRESHET_SERVICES_SANDBOX_ISOLATION_NAMESPACES_H_

#include "absl/status/status.h"

namespace freshet::sandbox {

// Gives up root: the process becomes user and group `user`. Only for a process with one thread.
absl::Status BecomeUser(unsigned user);

// Moves this process into user, network, IPC and host name namespaces of its own, in which it has
// no capabilities and no network but its own loopback interface, which is down. UNAVAILABLE: they
// are not allowed here. Only for a process with one thread.
absl::Status EnterNamespaces();

// As EnterNamespaces, with a mount namespace besides, and with all capabilities in it, until
// DropCapabilities.
absl::Status EnterMountNamespace();
// INTERNAL: they cannot be dropped.
absl::Status DropCapabilities();

}  // namespace freshet::sandbox

#endif  // FRESHET_SERVICES_SANDBOX_ISOLATION_NAMESPACES_H_
