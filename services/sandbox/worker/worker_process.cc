#include "services/sandbox/worker/worker_process.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "base/exit_code.h"
#include "base/message_socket.h"
#include "base/status_macros.h"
#include "base/str_cat.h"
#include "services/sandbox/isolation/file_access.h"
#include "services/sandbox/isolation/namespaces.h"
#include "services/sandbox/isolation/root_folder.h"
#include "services/sandbox/isolation/syscall_filter.h"
#include "services/sandbox/worker/mechanism.h"
#include "services/sandbox/worker/process_tree.h"
#include "services/sandbox/worker/program_runner.h"
#include "services/sandbox/worker/python_process.h"

namespace freshet::sandbox {
namespace {

constexpr absl::Duration kAnswerTimeout = absl::Seconds(30);

// What a worker needs to run programs.
struct Tools {
  std::unique_ptr<PythonProcess> python;
  std::unique_ptr<CommandRunner> commands;
  std::unique_ptr<ProgramRunner> programs;
};

std::string ConfineLibrary() {
  std::error_code failed;
  const auto program = std::filesystem::read_symlink("/proc/self/exe", failed);
  return (program.parent_path() / "libfreshet_confine.so").string();
}

// Everything that must hold before a program may run; otherwise an error, so that none runs.
absl::Status Isolate(const v1::WorkerStart& start, Mechanism mechanism,
                     std::vector<std::string>& layers) {
  if (::prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) != 0 ||
      ::prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0) {
    return Internal("prctl failed");
  }
  // Deep folders take a descriptor for each level.
  rlimit files{};
  if (::getrlimit(RLIMIT_NOFILE, &files) == 0) {
    files.rlim_cur = files.rlim_max;
    ::setrlimit(RLIMIT_NOFILE, &files);
  }
  if (!CanListChildren()) {
    return absl::UnavailableError("/proc does not list the children of processes");
  }
  if (start.user() > 0) {
    FRESHET_RETURN_IF_ERROR(BecomeUser(static_cast<unsigned>(start.user())));
    layers.emplace_back("own user");
  }
  if (::geteuid() == 0) return FailedPrecondition("programs must not run as root");
  layers.emplace_back("limits");
  layers.emplace_back("no new privileges");
  layers.emplace_back("seccomp");
  if (mechanism == Mechanism::kNamespaces) {
    FRESHET_RETURN_IF_ERROR(EnterMountNamespace());
    layers.emplace_back("namespaces");
    layers.emplace_back("mount and process namespaces");
  } else {
    layers.push_back(StrCat("Landlock ", LandlockVersion()));
    const absl::Status separate = EnterNamespaces();
    if (separate.ok()) {
      layers.emplace_back("namespaces");
    } else if (start.level() == v1::WorkerStart::LEVEL_NAMESPACES ||
               !absl::IsUnavailable(separate)) {
      return separate;
    }
  }
  // After the parent's death signal, which a new user resets.
  if (::prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) != 0) return Internal("PR_SET_PDEATHSIG");
  return absl::OkStatus();
}

// Proves that a program runs, that it cannot read a file that this process can, and that it is
// alone where it has a process namespace.
absl::Status TryProgram(const Tools& tools, Mechanism mechanism, const std::string& folder) {
  const std::string secret = folder + "/secret";
  {
    std::ofstream file(secret);
    file << "secret\n";
  }
  if (::access(secret.c_str(), R_OK) != 0) return Internal(secret, " cannot be written");
  v1::Program program;
  program.set_language("bash");
  program.set_code(StrCat("echo fine $(($$ <= 2)); for file in ../secret '", secret,
                          "'; do read line < \"$file\" && echo not confined; done"));
  program.add_inputs();
  program.set_run_ms(10'000);
  const v1::Outcome outcome = tools.programs->Run(program);
  ::unlink(secret.c_str());
  if (!outcome.error().empty()) return absl::UnavailableError(outcome.error());
  const char* expected = mechanism == Mechanism::kNamespaces ? "fine 1\n" : "fine 0\n";
  if (outcome.runs_size() == 1 && outcome.runs(0).standard_output() == expected) {
    return absl::OkStatus();
  }
  return StatusOf(absl::StatusCode::kUnavailable,
                  "a first program is not confined: ", outcome.ShortDebugString());
}

// Old kernels let programs truncate files that they may only read.
absl::Status CheckReadable(const std::vector<std::string>& paths) {
  constexpr int kForbidsTruncation = 3;  // version of Landlock
  if (LandlockVersion() >= kForbidsTruncation) return absl::OkStatus();
  for (const std::string& path : paths) {
    if (::access(path.c_str(), W_OK) == 0 && !path.starts_with("/dev/")) {
      return FailedPrecondition(path, " belongs to the user of the programs, who could change it");
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<Confinement> Confine(Mechanism mechanism, const std::string& folder,
                                    const std::vector<std::string>& readable) {
  if (mechanism == Mechanism::kLandlock) {
    FRESHET_RETURN_IF_ERROR(CheckReadable(readable));
    return FileRules::Create(readable);
  }
  const std::string root = folder + "/root";
  FRESHET_RETURN_IF_ERROR(MakeRootFolder(root, readable));
  FRESHET_RETURN_IF_ERROR(DropCapabilities());
  return root;
}

absl::StatusOr<Tools> Prepare(const v1::WorkerStart& start, std::vector<std::string>& layers) {
  FRESHET_ASSIGN_OR_RETURN(
      const Mechanism mechanism,
      ChooseMechanism(LandlockVersion() >= 1, HasNotifications(), start.level()));
  FRESHET_RETURN_IF_ERROR(Isolate(start, mechanism, layers));
  Tools tools;
  std::vector<std::string> readable = SystemPaths();
  readable.insert(readable.end(), start.readable().begin(), start.readable().end());
  if (!start.python().empty()) {
    FRESHET_ASSIGN_OR_RETURN(tools.python, PythonProcess::Start(start.python(), ConfineLibrary()));
    const std::vector<std::string>& paths = tools.python->paths();
    readable.insert(readable.end(), paths.begin(), paths.end());
  }
  FRESHET_ASSIGN_OR_RETURN(Confinement confinement, Confine(mechanism, start.folder(), readable));
  FRESHET_ASSIGN_OR_RETURN(
      SyscallFilters filters,
      MakeSyscallFilters(mechanism == Mechanism::kLandlock ? Supervisor::kWorker
                                                           : Supervisor::kNamespace));
  const CommandLimits limits{start.max_tasks(), start.max_memory_bytes(), start.max_folder_bytes(),
                             start.max_output_bytes()};
  tools.commands = std::make_unique<CommandRunner>(std::move(filters), std::move(confinement),
                                                   tools.python.get(), limits);
  tools.programs = std::make_unique<ProgramRunner>(start.folder(), start.python(), *tools.commands);
  FRESHET_RETURN_IF_ERROR(TryProgram(tools, mechanism, start.folder()));
  return tools;
}

absl::Status Work(MessageSocket& socket) {
  v1::WorkerStart start;
  FRESHET_RETURN_IF_ERROR(socket.Receive(start, kAnswerTimeout));
  v1::WorkerReady ready;
  std::vector<std::string> layers;
  const absl::StatusOr<Tools> tools = Prepare(start, layers);
  ready.mutable_layers()->Add(layers.begin(), layers.end());
  if (!tools.ok()) ready.set_error(Message(tools.status()));
  FRESHET_RETURN_IF_ERROR(socket.Send(ready, kAnswerTimeout));
  if (!tools.ok()) return tools.status();
  while (true) {
    v1::Program program;
    // The wait ends at the latest with the service.
    const absl::Status received = socket.Receive(program, absl::InfiniteDuration());
    if (absl::IsUnavailable(received)) return absl::OkStatus();
    FRESHET_RETURN_IF_ERROR(received);
    const v1::Outcome outcome = tools->programs->Run(program);
    FRESHET_RETURN_IF_ERROR(socket.Send(outcome, kAnswerTimeout));
    if (!outcome.error().empty()) return Internal(outcome.error());
  }
}

}  // namespace

int RunWorkerProcess() {
  MessageSocket socket{UniqueFd(::fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3))};
  // No other process inherits the socket.
  const UniqueFd null(::open("/dev/null", O_RDWR | O_CLOEXEC));
  if (null.get() < 0 || ::dup2(null.get(), STDIN_FILENO) < 0) return kExitInternal;
  return Work(socket).ok() ? kExitDone : kExitInternal;
}

}  // namespace freshet::sandbox
