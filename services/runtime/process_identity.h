#ifndef FRESHET_SERVICES_RUNTIME_PROCESS_IDENTITY_H_
#define FRESHET_SERVICES_RUNTIME_PROCESS_IDENTITY_H_

#include <string>

namespace freshet::runtime {

// Identifies the running system and the PID namespace of this process. Processes with the same id
// can open each other's files below /proc, and so share memory. "" if unavailable.
std::string HostId();

// 32 random hex digits from the system's entropy.
std::string RandomId();

// Name of this host, "localhost" if it has none.
std::string HostName();

}  // namespace freshet::runtime

#endif  // FRESHET_SERVICES_RUNTIME_PROCESS_IDENTITY_H_
