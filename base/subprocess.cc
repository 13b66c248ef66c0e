#include "base/subprocess.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <string_view>
#include <utility>

#include "absl/time/clock.h"
#include "base/str_cat.h"

namespace freshet {
namespace {

// How often a process is asked whether it has ended. Some sandboxes lack pidfd_open, which would
// make that unnecessary.
constexpr absl::Duration kPoll = absl::Milliseconds(10);

template <typename... Args>
absl::Status Unavailable(const Args&... args) {
  return StatusOf(absl::StatusCode::kUnavailable, args...);
}

std::vector<char*> Pointers(const std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  pointers.reserve(texts.size() + 1);
  for (const std::string& text : texts) pointers.push_back(const_cast<char*>(text.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

// Whether `variables` has one with the name of `variable`, "NAME=VALUE".
bool HasName(const std::vector<std::string>& variables, std::string_view variable) {
  const std::string_view name = variable.substr(0, variable.find('=') + 1);
  return std::ranges::any_of(variables,
                             [&](const std::string& other) { return other.starts_with(name); });
}

absl::Status StatusOfEnding(int status) {
  if (WIFSIGNALED(status)) return Unavailable("was ended by signal ", WTERMSIG(status));
  const int code = WEXITSTATUS(status);
  return code == 0 ? absl::OkStatus() : Unavailable("has ended with exit code ", code);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Subprocess>> Subprocess::Start(const SubprocessOptions& options) {
  const std::vector<char*> arguments = Pointers(options.argv);
  std::vector<std::string> environment = options.environment;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    if (!HasName(options.environment, *variable)) environment.emplace_back(*variable);
  }
  const std::vector<char*> variables = Pointers(environment);

  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  if (options.standard_input >= 0) {
    posix_spawn_file_actions_adddup2(&actions, options.standard_input, STDIN_FILENO);
  } else {
    posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  }
  if (options.output_to_stderr) {
    posix_spawn_file_actions_adddup2(&actions, STDERR_FILENO, STDOUT_FILENO);
  }
  if (options.standard_output >= 0) {
    posix_spawn_file_actions_adddup2(&actions, options.standard_output, STDOUT_FILENO);
  }
  if (options.standard_error >= 0) {
    posix_spawn_file_actions_adddup2(&actions, options.standard_error, STDERR_FILENO);
  }
  posix_spawn_file_actions_addclosefrom_np(&actions, STDERR_FILENO + 1);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t none;
  sigemptyset(&none);
  posix_spawnattr_setsigmask(&attributes, &none);
  sigset_t defaults;  // this process may ignore SIGPIPE
  sigemptyset(&defaults);
  sigaddset(&defaults, SIGPIPE);
  posix_spawnattr_setsigdefault(&attributes, &defaults);
  posix_spawnattr_setpgroup(&attributes, 0);
  posix_spawnattr_setflags(&attributes,
                           POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP);
  pid_t pid = -1;
  const int error =
      ::posix_spawn(&pid, arguments[0], &actions, &attributes, arguments.data(), variables.data());
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) {
    return Unavailable(options.argv[0], " cannot be started: ", std::strerror(error));
  }
  return std::unique_ptr<Subprocess>(new Subprocess(pid));
}

Subprocess::~Subprocess() {
  Kill();
  Ending().IgnoreError();
}

void Subprocess::Kill() {
  const MutexLock lock(mu_);
  if (reaped_) return;
  ::kill(-pid_, SIGKILL);
  ::kill(pid_, SIGKILL);  // it may have left its group
}

void Subprocess::Signal(int signal) {
  const MutexLock lock(mu_);
  if (!reaped_) ::kill(pid_, signal);
}

bool Subprocess::WaitFor(absl::Duration timeout) {
  const absl::Time deadline = absl::Now() + timeout;
  while (!HasEnded()) {
    const absl::Duration left = deadline - absl::Now();
    if (left <= absl::ZeroDuration()) return false;
    absl::SleepFor(std::min(left, kPoll));
  }
  return true;
}

bool Subprocess::HasEnded() {
  const MutexLock lock(mu_);
  if (reaped_) return true;
  siginfo_t info = {};
  return ::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOWAIT | WNOHANG) < 0 ||
         info.si_pid == pid_;
}

absl::Status Subprocess::Ending() {
  while (!HasEnded()) absl::SleepFor(kPoll);
  const MutexLock lock(mu_);
  if (reaped_) return ending_;
  ::kill(-pid_, SIGKILL);
  int status = 0;
  const bool known = ::waitpid(pid_, &status, 0) == pid_;
  ending_ = known ? StatusOfEnding(status) : Unavailable("has ended");
  if (known) exit_code_ = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  reaped_ = true;
  return ending_;
}

int Subprocess::ExitCode() {
  Ending().IgnoreError();
  const MutexLock lock(mu_);
  return exit_code_;
}

}  // namespace freshet
