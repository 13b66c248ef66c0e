#ifndef FRESHET_SERVICES_SANDBOX_WORKER_WORKER_PROCESS_H_
#define FRESHET_SERVICES_SANDBOX_WORKER_WORKER_PROCESS_H_

namespace freshet::sandbox {

// Command-line argument that makes freshet-sandbox run as one of its workers.
constexpr const char* kWorkerCommand = "sandbox-worker";

// Reads one program per message from the socket on standard input, runs it and answers, until the
// socket is closed. Returns the exit code.
int RunWorkerProcess();

}  // namespace freshet::sandbox

#endif  // FRESHET_SERVICES_SANDBOX_WORKER_WORKER_PROCESS_H_
