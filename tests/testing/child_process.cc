#include "tests/testing/child_process.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <utility>

#include "absl/time/clock.h"

namespace freshet {
namespace {

struct Pipe {
  int read = -1;
  int write = -1;
};

Pipe MakePipe() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) std::abort();
  return {ends[0], ends[1]};
}

// Returns a descriptor of a temporary file that contains `text`.
int OpenInput(const std::string& text) {
  std::FILE* file = std::tmpfile();
  if (file == nullptr) std::abort();
  std::fwrite(text.data(), 1, text.size(), file);
  std::rewind(file);
  const int fd = ::fcntl(::fileno(file), F_DUPFD_CLOEXEC, 0);
  std::fclose(file);
  return fd;
}

// Closes `fd` at end of file.
void ReadSome(int& fd, std::string& text) {
  char buffer[1 << 16];
  const ssize_t got = ::read(fd, buffer, sizeof(buffer));
  if (got > 0) {
    text.append(buffer, static_cast<size_t>(got));
    return;
  }
  ::close(std::exchange(fd, -1));
}

}  // namespace

ChildProcess::ChildProcess(const std::vector<std::string>& argv, const ChildOptions& options) {
  const Pipe out = MakePipe();
  const Pipe err = MakePipe();
  const int input = OpenInput(options.input);
  std::vector<char*> args;
  for (const std::string& arg : argv) args.push_back(const_cast<char*>(arg.c_str()));
  args.push_back(nullptr);
  pid_ = ::fork();
  if (pid_ < 0) std::abort();
  if (pid_ == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    ::dup2(input, STDIN_FILENO);
    ::dup2(out.write, STDOUT_FILENO);
    ::dup2(err.write, STDERR_FILENO);
    if (options.directory.empty() || ::chdir(options.directory.c_str()) == 0) {
      ::execv(args[0], args.data());
    }
    ::_exit(127);
  }
  ::close(out.write);
  ::close(err.write);
  ::close(input);
  out_ = out.read;
  err_ = err.read;
}

ChildProcess::~ChildProcess() {
  if (!reaped_) Wait(absl::ZeroDuration());
  if (out_ >= 0) ::close(out_);
  if (err_ >= 0) ::close(err_);
}

void ChildProcess::Signal(int signal) {
  if (!reaped_) ::kill(pid_, signal);
}

bool ChildProcess::Pump(absl::Duration timeout) {
  pollfd fds[2];
  nfds_t count = 0;
  if (out_ >= 0) fds[count++] = {out_, POLLIN, 0};
  if (err_ >= 0) fds[count++] = {err_, POLLIN, 0};
  if (count == 0) return false;
  const auto milliseconds = static_cast<int>(absl::ToInt64Milliseconds(timeout));
  if (::poll(fds, count, milliseconds) <= 0) return true;
  for (nfds_t i = 0; i < count; ++i) {
    if (fds[i].revents == 0) continue;
    if (fds[i].fd == out_) {
      ReadSome(out_, result_.out);
    } else {
      ReadSome(err_, result_.err);
    }
  }
  return true;
}

bool ChildProcess::AwaitOutput(const std::string& text, absl::Duration timeout) {
  const absl::Time deadline = absl::Now() + timeout;
  while (true) {
    if (result_.out.find(text) != std::string::npos) return true;
    if (result_.err.find(text) != std::string::npos) return true;
    const absl::Duration left = deadline - absl::Now();
    if (left <= absl::ZeroDuration() || !Pump(std::min(left, absl::Seconds(1)))) return false;
  }
}

ChildResult ChildProcess::Wait(absl::Duration timeout) {
  const absl::Time deadline = absl::Now() + timeout;
  while (!reaped_) {
    const absl::Duration left = std::max(deadline - absl::Now(), absl::ZeroDuration());
    if (left == absl::ZeroDuration() && !result_.timed_out) {
      result_.timed_out = true;
      ::kill(pid_, SIGKILL);
    }
    const bool open = Pump(std::min(left, absl::Seconds(1)));
    int status = 0;
    if (::waitpid(pid_, &status, left > absl::ZeroDuration() ? WNOHANG : 0) != pid_) {
      if (!open) ::poll(nullptr, 0, 1);  // outputs closed; the process is about to exit
      continue;
    }
    reaped_ = true;
    if (WIFEXITED(status)) result_.exit_code = WEXITSTATUS(status);
    if (WIFSIGNALED(status)) result_.signal = WTERMSIG(status);
  }
  // Drain the pipes without waiting for grandchildren that hold them open.
  for (int i = 0; i < 1000 && (out_ >= 0 || err_ >= 0); ++i) Pump(absl::ZeroDuration());
  return result_;
}

}  // namespace freshet
