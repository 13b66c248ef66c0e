#include "local/team_processes.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <memory>
#include <thread>

#include "absl/time/clock.h"
#include "base/exit_code.h"
#include "base/status_macros.h"
#include "base/str_cat.h"
#include "base/subprocess.h"
#include "base/unique_fd.h"

namespace freshet {
namespace {

constexpr absl::Duration kLookPeriod = absl::Milliseconds(20);
constexpr int kReadPeriodMs = 100;
// How long output is read after a process has ended. Others that it has started may hold its pipes.
constexpr absl::Duration kMaxReadAfterEnd = absl::Seconds(1);
constexpr size_t kMaxOutputLine = size_t{64} << 10;

struct Pipe {
  UniqueFd reader;
  UniqueFd writer;
};

absl::StatusOr<Pipe> MakePipe() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) {
    return StatusOf(absl::StatusCode::kUnavailable, "no pipe: ", std::strerror(errno));
  }
  return Pipe{UniqueFd(ends[0]), UniqueFd(ends[1])};
}

// A socket: unlike a pipe, it can be written without SIGPIPE.
absl::StatusOr<Pipe> MakeInput() {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
    return StatusOf(absl::StatusCode::kUnavailable, "no socket: ", std::strerror(errno));
  }
  return Pipe{UniqueFd(ends[0]), UniqueFd(ends[1])};
}

}  // namespace

class TeamProcesses::Child {
 public:
  static absl::StatusOr<std::unique_ptr<Child>> Start(TeamProcesses& team,
                                                      const TeamProcess& what) {
    FRESHET_ASSIGN_OR_RETURN(Pipe out, MakePipe());
    FRESHET_ASSIGN_OR_RETURN(Pipe err, MakePipe());
    FRESHET_ASSIGN_OR_RETURN(Pipe in, MakeInput());
    SubprocessOptions options;
    options.argv = what.argv;
    options.environment = what.environment;
    options.standard_input = in.reader.get();
    options.standard_output = out.writer.get();
    options.standard_error = err.writer.get();
    FRESHET_ASSIGN_OR_RETURN(auto process, Subprocess::Start(options));
    return std::unique_ptr<Child>(new Child(team, what.name, std::move(process),
                                            std::move(in.writer), std::move(out.reader),
                                            std::move(err.reader)));
  }
  // Kills it.
  ~Child() {
    process_->Kill();
    process_->Ending().IgnoreError();
    no_more_output_ = true;
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  const std::string& name() const { return name_; }
  bool ended() const { return ended_; }
  // Waits at most `timeout` for its end. Returns whether it has ended in this call; its output was
  // then taken.
  bool AwaitEnd(absl::Duration timeout) {
    if (ended_ || !process_->WaitFor(timeout)) return false;
    process_->Ending().IgnoreError();
    no_more_output_ = true;
    reader_.join();
    return ended_ = true;
  }
  // Requires: ended().
  int ExitCode() { return process_->ExitCode(); }
  // Writes a line to its standard input; it is lost if the process does not read.
  void Send(const std::string& text) {
    const std::string line = text + "\n";
    ::send(input_.get(), line.data(), line.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  }
  const std::string& last_error() const { return last_error_; }
  void Signal(int signal) { process_->Signal(signal); }
  void Kill() {
    was_killed_ = true;
    process_->Kill();
  }
  // Whether Kill() has ended it. Requires: ended().
  bool WasKilled() { return was_killed_ && ExitCode() == 128 + SIGKILL; }

 private:
  Child(TeamProcesses& team, std::string name, std::unique_ptr<Subprocess> process, UniqueFd in,
        UniqueFd out, UniqueFd err)
      : team_(team),
        name_(std::move(name)),
        process_(std::move(process)),
        input_(std::move(in)),
        outputs_{std::move(out), std::move(err)},
        reader_([this] { Read(); }) {}

  void Read() {
    std::array<pollfd, 2> waits = {pollfd{outputs_[0].get(), POLLIN, 0},
                                   pollfd{outputs_[1].get(), POLLIN, 0}};
    absl::Time end = absl::InfiniteFuture();
    while ((waits[0].fd >= 0 || waits[1].fd >= 0) && absl::Now() < end) {
      const bool ended = no_more_output_;  // before poll(), which then sees all that it has written
      if (ended) end = std::min(end, absl::Now() + kMaxReadAfterEnd);
      const int ready = ::poll(waits.data(), waits.size(), kReadPeriodMs);
      if (ready < 0 && errno == EINTR) continue;
      if (ready < 0 || (ready == 0 && ended)) break;
      for (size_t i = 0; i < waits.size(); ++i) {
        if (waits[i].fd >= 0 && waits[i].revents != 0 && !Take(i)) waits[i].fd = -1;
      }
    }
    for (size_t i = 0; i < waits.size(); ++i) TellRest(i);
  }

  // Reads what there is. Returns false at the end of the output.
  bool Take(size_t output) {
    std::array<char, 4096> bytes;
    const ssize_t size = ::read(outputs_[output].get(), bytes.data(), bytes.size());
    if (size < 0 && errno == EINTR) return true;
    std::string& text = texts_[output];
    if (size > 0) text.append(bytes.data(), static_cast<size_t>(size));
    size_t begin = 0;
    for (size_t end = 0; (end = text.find('\n', begin)) != std::string::npos; begin = end + 1) {
      Tell(output == 1, std::string_view(text).substr(begin, end - begin));
    }
    text.erase(0, begin);
    if (text.size() >= kMaxOutputLine) TellRest(output);
    return size > 0;
  }

  void TellRest(size_t output) {
    std::string& text = texts_[output];
    if (!text.empty()) Tell(output == 1, text);
    text.clear();
  }

  void Tell(bool is_error, std::string_view line) {
    if (is_error) last_error_ = std::string(line);
    const MutexLock lock(team_.mu_);
    team_.on_line_(name_, is_error, line);
  }

  TeamProcesses& team_;
  const std::string name_;
  const std::unique_ptr<Subprocess> process_;
  const UniqueFd input_;
  const std::array<UniqueFd, 2> outputs_;
  std::array<std::string, 2> texts_;  // of lines that are not complete
  std::string last_error_;            // the reader's until it is joined
  bool ended_ = false;
  bool was_killed_ = false;
  std::atomic<bool> no_more_output_{false};  // the process has ended
  std::jthread reader_;                      // last: it uses all of the above
};

void TeamProcesses::NoteEnd(Child& child, TeamEnd& end) const {
  const int code = child.ExitCode();
  if (code == 0 || (stops_ > 0 && code == kExitJobCancelled)) return;
  if (child.WasKilled() && end.killed.empty()) end.killed = child.name();
  if (stops_ > 0 && (child.WasKilled() || code == kExitInterrupted || code == 128 + SIGTERM)) {
    end.interrupted = true;
  } else if (end.failed.empty()) {
    end.failed = child.name();
    end.exit_code = code;
    end.error = child.last_error();
  }
}

absl::StatusOr<TeamEnd> TeamProcesses::Run(const std::vector<TeamProcess>& processes) {
  std::vector<std::unique_ptr<Child>> children;
  for (const TeamProcess& process : processes) {
    FRESHET_ASSIGN_OR_RETURN(std::unique_ptr<Child> child, Child::Start(*this, process));
    children.push_back(std::move(child));
  }
  TeamEnd end;
  bool told = false;
  absl::Time kill_at = absl::InfiniteFuture();
  const auto has_ended = [](const std::unique_ptr<Child>& child) { return child->ended(); };
  while (!std::ranges::all_of(children, has_ended)) {
    absl::Duration timeout = kLookPeriod;
    for (const auto& child : children) {
      if (child->ended()) continue;
      if (!child->AwaitEnd(std::exchange(timeout, absl::ZeroDuration()))) continue;
      NoteEnd(*child, end);
      for (const auto& other : children) {
        if (child->ExitCode() == 0 && !other->ended()) other->Send(child->name());
      }
    }
    const bool stops = stops_ > 0 || !end.failed.empty();
    if (stops && !told) kill_at = absl::Now() + grace_;
    const bool kills = stops_ > 1 || absl::Now() >= kill_at;
    for (const auto& child : children) {
      if (stops && !told && !child->ended()) child->Signal(SIGTERM);
      if (kills && !child->ended()) child->Kill();
    }
    told = stops;
  }
  return end;
}

}  // namespace freshet
