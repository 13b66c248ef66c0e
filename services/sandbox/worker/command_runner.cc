#include "services/sandbox/worker/command_runner.h"

#include <poll.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <utility>

#include "absl/time/clock.h"
#include "base/status_macros.h"
#include "base/str_cat.h"
#include "services/sandbox/isolation/root_paths.h"
#include "services/sandbox/worker/confined_process.h"
#include "services/sandbox/worker/process_tree.h"
#include "services/sandbox/worker/supervision.h"

namespace freshet::sandbox {

using v1::CommandResult;

namespace {

// How often memory and files are measured.
constexpr absl::Duration kMeasurePeriod = absl::Milliseconds(20);
constexpr absl::Duration kEndPatience = absl::Seconds(20);
// Address space of programs that reserve more than they use.
constexpr uint64_t kReservedBytes = uint64_t{64} << 30;
// Files and folders that a program may have.
constexpr int64_t kMaxEntries = 4096;
// The processes that EnterOwnNamespaces leaves as ancestors of the program's first one.
constexpr size_t kNamespaceProcesses = 2;
// Tasks of the same user that are not the program's (worker, service). The kernel's limit is above
// `tasks` by this number; it only bounds a program between two measurements.
constexpr int64_t kOtherTasks = 256;

// One of the program's outputs.
class Output {
 public:
  Output(int pipe, int64_t most) : pipe_(pipe), most_(static_cast<size_t>(most)) {}

  // Reads what there is, up to the limit.
  void Read() {
    char part[65536];
    while (text_.size() <= most_) {
      const ssize_t got = ::read(pipe_, part, std::min(sizeof(part), most_ + 1 - text_.size()));
      if (got == 0) open_ = false;
      if (got <= 0) return;
      text_.append(part, static_cast<size_t>(got));
    }
  }
  bool open() const { return open_; }
  bool TooLong() const { return text_.size() > most_; }
  int pipe() const { return pipe_; }
  std::string Take() {
    if (TooLong()) text_.resize(most_);
    return std::move(text_);
  }

 private:
  const int pipe_;
  const size_t most_;
  std::string text_;
  bool open_ = true;
};

double Seconds(const timeval& time) {
  return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
}

// How the process, which has ended, did so. `python`: whose child it is; null: this process's.
absl::StatusOr<ProcessEnd> TakeEnd(pid_t process, const PythonProcess* python) {
  if (python != nullptr) return python->AwaitEnd(kEndPatience);
  int status = 0;
  rusage used{};
  if (::wait4(process, &status, WNOHANG, &used) != process) {
    return Internal("process ", process, " of a program cannot be waited for");
  }
  return ProcessEnd{ExitCode(status), Seconds(used.ru_utime) + Seconds(used.ru_stime)};
}

// A program, as it is measured.
struct Measured {
  const ProgramFolder& folder;
  std::string path;  // of the folder, as the kernel shows it
  const ProcessTree& tree;
  bool own_namespaces;
};

CommandResult::End ExceededLimit(const CommandLimits& limits, const Measured& program) {
  std::vector<pid_t> members = Members(program.tree);
  if (program.own_namespaces) {
    if (members.size() > program.tree.most) return CommandResult::END_TASK_LIMIT;
    // Not those that are not the program's.
    members.erase(members.begin(), members.begin() + static_cast<ptrdiff_t>(std::min(
                                                         members.size(), kNamespaceProcesses)));
    if (CountTasks(members) > limits.tasks + 1) return CommandResult::END_TASK_LIMIT;
  }
  if (ResidentBytes(members, limits.memory_bytes) > limits.memory_bytes)
    return CommandResult::END_MEMORY_LIMIT;
  const FolderUse use = program.folder.Use(kMaxEntries);
  if (use.entries >= kMaxEntries ||
      use.bytes + UnseenBytes(members, program.path) > limits.folder_bytes) {
    return CommandResult::END_FOLDER_LIMIT;
  }
  return CommandResult::END_UNSPECIFIED;
}

// Waits until the program's first process ends or a limit is exceeded; then returns which one.
CommandResult::End Watch(const ConfinedProcess& process, Supervision& supervision, Output& output,
                         Output& error, const CommandLimits& limits, const Measured& program,
                         absl::Time deadline) {
  absl::Time next_look = absl::Now() + kMeasurePeriod;
  bool listens = process.listener.get() >= 0;
  while (true) {
    const absl::Time now = absl::Now();
    if (now >= deadline) return CommandResult::END_TIME_LIMIT;
    if (now >= next_look) {
      const CommandResult::End exceeded = ExceededLimit(limits, program);
      if (exceeded != CommandResult::END_UNSPECIFIED) return exceeded;
      next_look = absl::Now() + kMeasurePeriod;
    }
    pollfd wanted[] = {{process.process.get(), POLLIN, 0},
                       {listens ? process.listener.get() : -1, POLLIN, 0},
                       {output.open() ? output.pipe() : -1, POLLIN, 0},
                       {error.open() ? error.pipe() : -1, POLLIN, 0}};
    const absl::Duration wait = std::min(deadline, next_look) - now;
    if (::poll(wanted, std::size(wanted), static_cast<int>(absl::ToInt64Milliseconds(wait)) + 1) <=
        0) {
      continue;
    }
    if (wanted[2].revents != 0) output.Read();
    if (wanted[3].revents != 0) error.Read();
    if (output.TooLong() || error.TooLong()) return CommandResult::END_OUTPUT_LIMIT;
    if ((wanted[1].revents & POLLIN) != 0) {
      supervision.Answer();
    } else if (wanted[1].revents != 0) {
      listens = false;  // no process has the filter any more
    }
    if (wanted[0].revents != 0) return CommandResult::END_EXITED;
  }
}

// Lets the first process of a program's namespace end all others, wait for them, and end.
void EndNamespace(const ConfinedProcess& process, const ProcessTree& tree) {
  ProcessTree nearest = tree;
  nearest.most = kNamespaceProcesses;
  const std::vector<pid_t> members = Members(nearest);
  if (members.size() < kNamespaceProcesses || members[0] != process.pid) return;
  ::kill(members[1], SIGTERM);
  pollfd ended{process.process.get(), POLLIN, 0};
  (void)::poll(&ended, 1, static_cast<int>(absl::ToInt64Milliseconds(kEndPatience)));
}

absl::StatusOr<UniqueFd> MakeRules(const FileRules& rules, const Command& command) {
  std::vector<PathAccess> access = {{command.folder->descriptor(), /*write=*/true}};
  if (command.built != nullptr) access.push_back({command.built->descriptor(), /*write=*/false});
  return rules.Make(access);
}

absl::Status FillPath(const std::string& path, char (&field)[kFreshetMaxPathBytes]) {
  if (path.empty() || path.size() >= kFreshetMaxPathBytes) {
    return FailedPrecondition("the path ", path, " has more than ", kFreshetMaxPathBytes - 1,
                              " bytes; give a shorter --folder");
  }
  path.copy(field, path.size());
  return absl::OkStatus();
}

}  // namespace

CommandRunner::CommandRunner(SyscallFilters filters, Confinement confinement,
                             const PythonProcess* python, const CommandLimits& limits)
    : filters_(std::move(filters)),
      confinement_(std::move(confinement)),
      python_(python),
      limits_(limits) {}

std::string CommandRunner::PathInside(const ProgramFolder& built) const {
  return std::holds_alternative<FileRules>(confinement_) ? built.path() : kBuiltFolder;
}

absl::StatusOr<CommandResult> CommandRunner::Run(const Command& command) const {
  FreshetConfinement confinement{};
  UniqueFd rules;
  const std::string* const root = std::get_if<std::string>(&confinement_);
  if (root != nullptr) {
    confinement.tasks = static_cast<uint64_t>(limits_.tasks + kOtherTasks);
    FRESHET_RETURN_IF_ERROR(FillPath(*root, confinement.root));
    FRESHET_RETURN_IF_ERROR(FillPath(command.folder->path(), confinement.folder));
    if (command.built != nullptr) {
      FRESHET_RETURN_IF_ERROR(FillPath(command.built->path(), confinement.built));
    }
  } else {
    FRESHET_ASSIGN_OR_RETURN(rules, MakeRules(std::get<FileRules>(confinement_), command));
  }
  confinement.address_space_bytes =
      command.limit_address_space ? static_cast<uint64_t>(limits_.memory_bytes) : kReservedBytes;
  confinement.cpu_seconds = static_cast<uint64_t>(absl::ToInt64Seconds(command.time)) + 2;
  confinement.file_bytes = static_cast<uint64_t>(limits_.folder_bytes);
  ProcessTree tree;
  if (python_ != nullptr) {
    tree.roots.push_back(python_->pid());
    tree.except.push_back(python_->pid());
  }
  tree.roots.push_back(::getpid());  // last: it adopts orphans
  if (root != nullptr) tree.most = static_cast<size_t>(limits_.tasks) + kNamespaceProcesses + 1;
  const absl::Time begin = absl::Now();
  FRESHET_ASSIGN_OR_RETURN(
      const ConfinedProcess process,
      StartConfined({command.argv, python_, command.input, command.folder->descriptor(),
                     rules.get(), filters_, confinement}));
  Supervision supervision(process.listener.get(), limits_.tasks, [&tree] { return Members(tree); });
  const int64_t output_bytes =
      command.output_bytes > 0 ? command.output_bytes : limits_.output_bytes;
  Output output(process.output.get(), output_bytes);
  Output error(process.error.get(), output_bytes);
  CommandResult result;
  const Measured program{*command.folder, root != nullptr ? kProgramFolder : command.folder->path(),
                         tree, root != nullptr};
  result.set_end(
      Watch(process, supervision, output, error, limits_, program, begin + command.time));
  result.set_wall_seconds(absl::ToDoubleSeconds(absl::Now() - begin));
  // No process can start another one while they are killed, so none escapes: nor can those of a
  // process namespace whose first process is killed.
  supervision.EndStarts();
  const bool exited = result.end() == CommandResult::END_EXITED;
  const PythonProcess* parent = command.argv.empty() ? python_ : nullptr;
  ProcessEnd end;
  if (exited) {
    FRESHET_ASSIGN_OR_RETURN(end, TakeEnd(process.pid, parent));
    result.set_exit_code(end.exit_code);
    if (end.exit_code == -SIGXCPU) {
      result.set_end(CommandResult::END_TIME_LIMIT);
    } else if (end.exit_code == -SIGXFSZ) {
      result.set_end(CommandResult::END_FOLDER_LIMIT);
    }
  }
  if (root != nullptr && !exited) EndNamespace(process, tree);
  FRESHET_RETURN_IF_ERROR(KillAll(tree, kEndPatience, end.cpu_seconds));
  // The Python process reports every end.
  if (!exited && parent != nullptr) {
    FRESHET_RETURN_IF_ERROR(parent->AwaitEnd(kEndPatience).status());
  }
  output.Read();
  error.Read();
  if (result.end() == CommandResult::END_EXITED && (output.TooLong() || error.TooLong())) {
    result.set_end(CommandResult::END_OUTPUT_LIMIT);
  }
  result.set_cpu_seconds(end.cpu_seconds);
  result.set_standard_output(output.Take());
  result.set_standard_error(error.Take());
  return result;
}

}  // namespace freshet::sandbox
