#ifndef FRESHET_SERVICES_RUNTIME_PROCESS_IDENTITY_H_
#define FRESHET_SERVICES_RUNTIME_PROCESS_IDENTITY_H_

#include <string>

namespace freshet::runtime {

// Identifies the running system and the PID namespace of this process: those of the same id can
// open each other's files below /proc, and so share memory. "" when the system does not say.
std::string HostId();

// 32 hex digits from the system's entropy: another one in every process.
std::string RandomId();

// Name of this host, "localhost" when it has none.
std::string HostName();

}  // namespace freshet::runtime

#endif  // FRESHET_SERVICES_RUNTIME_PROCESS_IDENTITY_H_
