#ifndef FRESHET_SERVICES_SANDBOX_WORKER_WORKER_PROCESS_H_
#define FRESHET_SERVICES_SANDBOX_WORKER_WORKER_PROCESS_H_

namespace freshet::sandbox {

// Command-line argument that makes freshet-sandbox run as one of its workers.
constexpr const char* kWorkerCommand = "sandbox-worker";

// Runs programs one after the other, as the messages on standard input, a socket, say, until it is
// closed. Returns the exit code.
int RunWorkerProcess();

}  // namespace freshet::sandbox

#endif  // FRESHET_SERVICES_SANDBOX_WORKER_WORKER_PROCESS_H_
