#include <cstring>

#include "services/sandbox/service/sandbox_process.h"
#include "services/sandbox/worker/worker_process.h"

int main(int argc, char** argv) {
  if (argc == 2 && std::strcmp(argv[1], freshet::sandbox::kWorkerCommand) == 0) {
    return freshet::sandbox::RunWorkerProcess();
  }
  return freshet::sandbox::RunSandboxProcess(argc, argv);
}
