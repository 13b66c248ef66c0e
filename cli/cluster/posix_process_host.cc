#include "cli/cluster/posix_process_host.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>
#include <string_view>
#include <utility>

#include "base/log.h"
#include "base/str_cat.h"
#include "cli/cluster/rotating_log.h"

namespace freshet {
namespace {

constexpr int64_t kMaxChildLogBytes = 8 << 20;
constexpr size_t kMaxLineBytes = 4096;

sigset_t HandledSignals() {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : {SIGINT, SIGTERM, SIGCHLD}) sigaddset(&set, signal);
  return set;
}

// Runs in the child between fork and exec, so it makes only async-signal-safe calls. Does not
// return.
[[noreturn]] void RunChild(pid_t parent, int out, int err, char* const* argv) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(127);  // the parent died before prctl
  ::setpgid(0, 0);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  const int null = ::open("/dev/null", O_RDONLY);
  ::dup2(null, STDIN_FILENO);
  ::dup2(out, STDOUT_FILENO);
  ::dup2(err, STDERR_FILENO);
  ::execv(argv[0], argv);
  constexpr char kMessage[] = "the program cannot be started\n";
  const ssize_t ignored = ::write(STDERR_FILENO, kMessage, sizeof(kMessage) - 1);
  ::_exit(ignored < 0 ? 126 : 127);
}

}  // namespace

struct PosixProcessHost::Child {
  pid_t pid = -1;
  int out = -1;
  int err = -1;
  std::string line;  // of stdout, not terminated yet
  std::unique_ptr<RotatingLog> log;

  ~Child() {
    if (out >= 0) ::close(out);
    if (err >= 0) ::close(err);
  }
};

PosixProcessHost::PosixProcessHost(std::function<std::string(const ProcessId&)> log_file)
    : log_file_(std::move(log_file)) {
  const sigset_t set = HandledSignals();
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  signal_fd_ = ::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
  FRESHET_CHECK(signal_fd_ >= 0);
}

PosixProcessHost::~PosixProcessHost() {
  for (const auto& [id, child] : children_) {
    ::kill(child->pid, SIGKILL);
    ::waitpid(child->pid, nullptr, 0);
  }
  ::close(signal_fd_);
}

absl::StatusOr<ProcessStamp> PosixProcessHost::Start(const ProcessId& id,
                                                     const std::vector<std::string>& argv) {
  std::vector<char*> arguments;
  for (const std::string& argument : argv) arguments.push_back(const_cast<char*>(argument.c_str()));
  arguments.push_back(nullptr);
  int out[2];
  int err[2];
  if (::pipe2(out, O_CLOEXEC) != 0) return ResourceExhausted("pipe: ", std::strerror(errno));
  if (::pipe2(err, O_CLOEXEC) != 0) {
    ::close(out[0]);
    ::close(out[1]);
    return ResourceExhausted("pipe: ", std::strerror(errno));
  }
  const pid_t parent = ::getpid();
  const pid_t pid = ::fork();
  if (pid == 0) RunChild(parent, out[1], err[1], arguments.data());
  const int error = errno;
  ::close(out[1]);
  ::close(err[1]);
  auto child = std::make_unique<Child>();
  child->out = out[0];
  child->err = err[0];
  if (pid < 0) return ResourceExhausted(id.Name(), ": cannot be started: ", std::strerror(error));
  for (const int fd : {child->out, child->err}) ::fcntl(fd, F_SETFL, O_NONBLOCK);
  child->pid = pid;
  child->log = std::make_unique<RotatingLog>(log_file_(id), kMaxChildLogBytes);
  children_[id] = std::move(child);
  return ProcessStamp{pid, StartTicks(pid)};
}

void PosixProcessHost::Signal(const ProcessId& id, int signal) {
  const auto found = children_.find(id);
  // Only Wait reaps children, so the pid cannot have been reused.
  if (found != children_.end()) ::kill(found->second->pid, signal);
}

void PosixProcessHost::ReadOutput(Child& child, bool is_stdout, std::vector<ProcessEvent>& events) {
  int& fd = is_stdout ? child.out : child.err;
  std::array<char, 16384> buffer{};
  // One buffer at a time, so that a child that writes endlessly does not starve the others.
  const ssize_t got = fd < 0 ? 0 : ::read(fd, buffer.data(), buffer.size());
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (got <= 0) {
    if (fd >= 0) ::close(fd);
    fd = -1;
    return;
  }
  std::string_view bytes(buffer.data(), static_cast<size_t>(got));
  child.log->Write(bytes);
  if (!is_stdout) return;
  while (!bytes.empty()) {
    const size_t end = bytes.find('\n');
    const std::string_view piece = bytes.substr(0, end);
    child.line += piece.substr(0, kMaxLineBytes - std::min(kMaxLineBytes, child.line.size()));
    if (end == std::string_view::npos) return;
    ProcessEvent event;
    event.kind = ProcessEvent::Kind::kLine;
    event.line = std::exchange(child.line, "");
    events.push_back(std::move(event));
    bytes.remove_prefix(end + 1);
  }
}

void PosixProcessHost::ReadSignals() {
  signalfd_siginfo info{};
  while (::read(signal_fd_, &info, sizeof(info)) == sizeof(info)) {
    const auto signal = static_cast<int>(info.ssi_signo);
    if (signal == SIGINT || signal == SIGTERM) ++stop_signals_;
  }
}

void PosixProcessHost::Reap(std::vector<ProcessEvent>& events) {
  for (auto it = children_.begin(); it != children_.end();) {
    int status = 0;
    if (::waitpid(it->second->pid, &status, WNOHANG) != it->second->pid) {
      ++it;
      continue;
    }
    // Read its remaining output.
    for (int i = 0; i < 64; ++i) {
      const size_t first = events.size();
      ReadOutput(*it->second, true, events);
      for (size_t k = first; k < events.size(); ++k) events[k].id = it->first;
      ReadOutput(*it->second, false, events);
    }
    ProcessEvent event;
    event.kind = ProcessEvent::Kind::kExited;
    event.id = it->first;
    event.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    event.signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    events.push_back(std::move(event));
    it = children_.erase(it);
  }
}

std::vector<ProcessEvent> PosixProcessHost::Wait(absl::Duration timeout) {
  std::vector<pollfd> fds = {{signal_fd_, POLLIN, 0}};
  std::vector<std::pair<const ProcessId*, bool>> owners = {{nullptr, false}};
  for (const auto& [id, child] : children_) {
    for (const bool is_stdout : {true, false}) {
      const int fd = is_stdout ? child->out : child->err;
      if (fd < 0) continue;
      fds.push_back({fd, POLLIN, 0});
      owners.emplace_back(&id, is_stdout);
    }
  }
  std::vector<ProcessEvent> events;
  const auto wait =
      static_cast<int>(std::clamp<int64_t>(absl::ToInt64Milliseconds(timeout), 0, INT_MAX));
  ::poll(fds.data(), fds.size(), wait);
  for (size_t i = 1; i < fds.size(); ++i) {
    if (fds[i].revents == 0) continue;
    const size_t first = events.size();
    ReadOutput(*children_.at(*owners[i].first), owners[i].second, events);
    for (size_t k = first; k < events.size(); ++k) events[k].id = *owners[i].first;
  }
  ReadSignals();
  Reap(events);
  return events;
}

int64_t StartTicks(int64_t pid) {
  std::ifstream file(StrCat("/proc/", pid, "/stat"));
  std::string text;
  std::getline(file, text);
  // The name in parentheses may contain anything; the start time is field 22, the 20th after it.
  const size_t end = text.rfind(')');
  if (end == std::string::npos) return 0;
  std::istringstream fields(text.substr(end + 1));
  std::string field;
  std::string state;
  for (int i = 0; i < 20 && fields >> field; ++i) {
    if (i == 0) state = field;
  }
  return state == "Z" || state == "X" ? 0 : std::atoll(field.c_str());
}

bool Runs(const ProcessStamp& stamp) {
  return stamp.pid > 0 && stamp.start_ticks > 0 && StartTicks(stamp.pid) == stamp.start_ticks;
}

}  // namespace freshet
