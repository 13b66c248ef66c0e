#ifndef FRESHET_SERVICES_SANDBOX_SERVICE_SANDBOX_PROCESS_H_
#define FRESHET_SERVICES_SANDBOX_SERVICE_SANDBOX_PROCESS_H_

namespace freshet::sandbox {

// main() of freshet-sandbox. Returns the exit code.
int RunSandboxProcess(int argc, char** argv);

}  // namespace freshet::sandbox

#endif  // FRESHET_SERVICES_SANDBOX_SERVICE_SANDBOX_PROCESS_H_
