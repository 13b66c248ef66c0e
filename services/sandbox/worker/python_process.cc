#include "services/sandbox/worker/python_process.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>

#include "absl/strings/str_split.h"
#include "base/str_cat.h"
#include "services/sandbox/isolation/send_descriptors.h"
#include "services/sandbox/worker/interpreter_file.h"
#include "services/sandbox/worker/program_environment.h"

namespace freshet::sandbox {
namespace {

constexpr int kStartMilliseconds = 60'000;

absl::Status Unavailable(const std::string& why) { return absl::UnavailableError(why); }

}  // namespace

absl::StatusOr<std::unique_ptr<PythonProcess>> PythonProcess::Start(const std::string& python,
                                                                    const std::string& library) {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) {
    return Unavailable(StrCat("a socket pair: ", std::strerror(errno)));
  }
  UniqueFd ours(ends[0]);
  UniqueFd theirs(ends[1]);
  const std::string text(InterpreterPy());
  const std::string descriptor = StrCat(theirs.get());
  const pid_t pid = ::fork();
  if (pid < 0) return Unavailable(StrCat("fork: ", std::strerror(errno)));
  if (pid == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
    ::fcntl(theirs.get(), F_SETFD, 0);
    const char* argv[] = {python.c_str(),  "-I",   "-c", text.c_str(), descriptor.c_str(),
                          library.c_str(), nullptr};
    ::execve(python.c_str(), const_cast<char**>(argv), ProgramEnvironment());
    ::_exit(127);
  }
  theirs = UniqueFd();  // so that the end of the process ends the wait
  std::unique_ptr<PythonProcess> process(new PythonProcess(pid, std::move(ours)));
  pollfd wanted{process->socket_.get(), POLLIN, 0};
  if (::poll(&wanted, 1, kStartMilliseconds) != 1) {
    return Unavailable(StrCat(python, " does not answer within a minute"));
  }
  std::string paths(1 << 16, '\0');
  const ssize_t got = ::recv(process->socket_.get(), paths.data(), paths.size(), 0);
  if (got <= 0) return Unavailable(StrCat(python, " ends at once"));
  paths.resize(static_cast<size_t>(got));
  process->paths_ = absl::StrSplit(paths, '\n', absl::SkipEmpty());
  return process;
}

int ExitCode(int status) { return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status); }

PythonProcess::~PythonProcess() {
  ::kill(pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
}

absl::Status PythonProcess::Fork(int control) const {
  char byte = 0;
  iovec parts[] = {{&byte, 1}};
  const int fds[] = {control};
  if (SendDescriptors(socket_.get(), parts, fds) == 1) return absl::OkStatus();
  return Unavailable(StrCat("the Python process has ended: ", std::strerror(errno)));
}

absl::StatusOr<ProcessEnd> PythonProcess::AwaitEnd(absl::Duration timeout) const {
  pollfd wanted{socket_.get(), POLLIN, 0};
  char text[64] = {};
  int status = 0;
  ProcessEnd end;
  if (::poll(&wanted, 1, static_cast<int>(absl::ToInt64Milliseconds(timeout))) != 1 ||
      ::recv(socket_.get(), text, sizeof(text) - 1, 0) <= 0 ||
      std::sscanf(text, "%d %lf", &status, &end.cpu_seconds) != 2) {
    return Unavailable("the Python process does not say how a program has ended");
  }
  end.exit_code = ExitCode(status);
  return end;
}

}  // namespace freshet::sandbox
