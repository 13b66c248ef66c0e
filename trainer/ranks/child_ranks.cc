#include "trainer/ranks/child_ranks.h"

#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <thread>
#include <utility>

#include "absl/time/clock.h"
#include "base/mutex.h"
#include "base/status_macros.h"
#include "base/str_cat.h"
#include "collective/gloo_communicator.h"
#include "trainer/ranks/message_socket.h"

namespace freshet {
namespace {

template <typename... Args>
absl::Status Unavailable(const Args&... args) {
  return StatusOf(absl::StatusCode::kUnavailable, args...);
}

using trainer::v1::RankCommand;
using trainer::v1::RankReport;

// An upper bound: a rank that hangs is killed after `silence`.
constexpr absl::Duration kSendTimeout = absl::Minutes(10);
constexpr absl::Duration kConnectTimeout = absl::Seconds(30);

// The folder in which the ranks of a group find each other.
class RendezvousFolder {
 public:
  RendezvousFolder() {
    std::error_code error;
    std::string path =
        (std::filesystem::temp_directory_path(error) / "freshet-ranks-XXXXXX").string();
    if (!error && ::mkdtemp(path.data()) != nullptr) path_ = path;
  }
  ~RendezvousFolder() {
    std::error_code ignored;
    if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
  }
  RendezvousFolder(const RendezvousFolder&) = delete;
  RendezvousFolder& operator=(const RendezvousFolder&) = delete;

  bool ok() const { return !path_.empty(); }
  std::string file() const { return path_ + "/group"; }

 private:
  std::string path_;
};

// In a process group of its own, so that Ctrl-C reaches rank 0 only.
absl::StatusOr<pid_t> Spawn(const std::vector<std::string>& argv, int standard_input) {
  std::vector<char*> arguments;
  arguments.reserve(argv.size() + 1);
  for (const std::string& argument : argv) arguments.push_back(const_cast<char*>(argument.c_str()));
  arguments.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, standard_input, STDIN_FILENO);
  posix_spawn_file_actions_addclosefrom_np(&actions, STDERR_FILENO + 1);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t none;
  sigemptyset(&none);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setpgroup(&attributes, 0);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETPGROUP);
  pid_t pid = -1;
  const int error =
      ::posix_spawn(&pid, arguments[0], &actions, &attributes, arguments.data(), environ);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) return Unavailable(argv[0], " cannot be started: ", std::strerror(error));
  return pid;
}

// What is known of a group's ranks, from their listeners.
class RankStates {
 public:
  explicit RankStates(size_t others) : reports_(others) {}

  void Report(size_t child, const RankReport& report) {
    const MutexLock lock(mu_);
    reports_[child] = report;
    changed_.NotifyAll();
  }
  // Aborts the communicator.
  void Lose(const std::string& reason) {
    const MutexLock lock(mu_);
    if (reason_.empty()) reason_ = reason;
    if (communicator_ != nullptr) communicator_->Abort(reason_);
    changed_.NotifyAll();
  }
  void Attach(Communicator* communicator) {
    const MutexLock lock(mu_);
    communicator_ = communicator;
    if (communicator != nullptr && !reason_.empty()) communicator->Abort(reason_);
  }
  std::vector<RankReport> reports() const {
    const MutexLock lock(mu_);
    return reports_;
  }

  // OK once all ranks are about to connect.
  absl::Status AwaitJoining(absl::Duration timeout) {
    const absl::Time deadline = absl::Now() + timeout;
    const MutexLock lock(mu_);
    while (reason_.empty()) {
      const auto starting = std::ranges::find_if(reports_, [](const RankReport& report) {
        return report.state() != RankReport::STATE_JOINING;
      });
      if (starting == reports_.end()) return absl::OkStatus();
      const absl::Duration left = deadline - absl::Now();
      if (left <= absl::ZeroDuration()) {
        return Unavailable("rank ", starting - reports_.begin() + 1, " has not started in ",
                           absl::FormatDuration(timeout));
      }
      changed_.WaitFor(mu_, left);
    }
    return absl::UnavailableError(reason_);
  }
  std::string AwaitReason(absl::Duration patience) {
    const absl::Time deadline = absl::Now() + patience;
    const MutexLock lock(mu_);
    while (reason_.empty()) {
      const absl::Duration left = deadline - absl::Now();
      if (left <= absl::ZeroDuration()) break;
      changed_.WaitFor(mu_, left);
    }
    return reason_;
  }

 private:
  mutable Mutex mu_;
  CondVar changed_;
  std::vector<RankReport> reports_ ABSL_GUARDED_BY(mu_);
  std::string reason_ ABSL_GUARDED_BY(mu_);  // of the first loss
  Communicator* communicator_ ABSL_GUARDED_BY(mu_) = nullptr;
};

// A child and the thread that listens to it.
class ChildRank {
 public:
  static absl::StatusOr<std::unique_ptr<ChildRank>> Start(const ChildRankOptions& options,
                                                          const trainer::v1::RankStart& start,
                                                          std::shared_ptr<RankStates> watch) {
    int ends[2];
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
      return Unavailable("a socket pair: ", std::strerror(errno));
    }
    UniqueFd ours(ends[0]);
    const UniqueFd theirs(ends[1]);
    FRESHET_ASSIGN_OR_RETURN(const pid_t pid, Spawn(options.argv, theirs.get()));
    std::unique_ptr<ChildRank> child(new ChildRank(pid, std::move(ours)));
    RankCommand command;
    *command.mutable_start() = start;
    FRESHET_RETURN_IF_ERROR(child->socket_.Send(command, kSendTimeout));
    child->listener_ =
        std::thread([&child = *child, rank = start.rank(), options, watch = std::move(watch)] {
          const std::string reason = child.Listen(options, static_cast<size_t>(rank) - 1, *watch);
          if (reason.empty() || child.ending_.HasBeenNotified()) return;
          watch->Lose(StrCat("rank ", rank, " ", reason));
        });
    return child;
  }

  ~ChildRank() {
    ending_.Notify();
    Kill();
    if (listener_.joinable()) listener_.join();
    Reap();
  }

  MessageSocket& socket() { return socket_; }

 private:
  ChildRank(pid_t pid, UniqueFd fd) : pid_(pid), socket_(std::move(fd)) {}

  // Returns how the child was lost; "" if it has left a group that had failed.
  std::string Listen(const ChildRankOptions& options, size_t child, RankStates& watch) {
    RankReport report;
    absl::Duration patience = options.start_timeout;
    while (true) {
      const absl::Status received = socket_.Receive(report, patience);
      if (!received.ok()) Kill();
      if (absl::IsUnavailable(received)) return Reap();
      if (absl::IsDeadlineExceeded(received)) {
        return StrCat("has said nothing for ", absl::FormatDuration(patience));
      }
      if (!received.ok()) return Message(received);
      if (report.state() == RankReport::STATE_LEFT) return "";
      if (report.state() == RankReport::STATE_FAILED) return StrCat("failed: ", report.error());
      watch.Report(child, report);
      patience = options.silence;
    }
  }

  void Kill() {
    const MutexLock lock(mu_);
    if (!reaped_) ::kill(pid_, SIGKILL);
  }
  // Call it after Kill.
  std::string Reap() {
    const MutexLock lock(mu_);
    if (reaped_) return "has ended";
    int status = 0;
    pid_t ended = -1;
    do {
      ended = ::waitpid(pid_, &status, 0);
    } while (ended < 0 && errno == EINTR);
    reaped_ = true;
    if (ended != pid_) return "has ended";
    if (WIFSIGNALED(status)) return StrCat("was ended by signal ", WTERMSIG(status));
    return StrCat("has ended with exit code ", WEXITSTATUS(status));
  }

  const pid_t pid_;
  MessageSocket socket_;
  Notification ending_;
  Mutex mu_;
  bool reaped_ ABSL_GUARDED_BY(mu_) = false;
  std::thread listener_;
};

class ChildRankGroup final : public RankGroup {
 public:
  explicit ChildRankGroup(int ranks)
      : watch_(std::make_shared<RankStates>(static_cast<size_t>(ranks) - 1)) {}

  static absl::StatusOr<std::unique_ptr<RankGroup>> Start(const ChildRankOptions& options,
                                                          int ranks) {
    auto group = std::make_unique<ChildRankGroup>(ranks);
    const auto folder = std::make_shared<const RendezvousFolder>();
    if (!folder->ok()) return Unavailable("cannot make a folder for temporary files; set TMPDIR");
    trainer::v1::RankStart start = options.start;
    start.set_ranks(ranks);
    start.set_rendezvous_file(folder->file());
    for (int rank = 1; rank < ranks; ++rank) {
      start.set_rank(rank);
      FRESHET_ASSIGN_OR_RETURN(auto child, ChildRank::Start(options, start, group->watch_));
      group->children_.push_back(std::move(child));
    }
    FRESHET_RETURN_IF_ERROR(group->watch_->AwaitJoining(options.start_timeout));
    GlooOptions gloo;
    gloo.size = ranks;
    gloo.rendezvous_file = start.rendezvous_file();
    gloo.file_owner = folder;
    gloo.connect_timeout = kConnectTimeout;
    FRESHET_ASSIGN_OR_RETURN(group->communicator_, ConnectGloo(gloo));
    group->watch_->Attach(group->communicator_.get());
    return group;
  }

  ~ChildRankGroup() override {
    watch_->Attach(nullptr);
    children_.clear();
  }

  Communicator& communicator() override { return *communicator_; }
  absl::Status Send(int rank, const trainer::v1::RankWork& work) override {
    RankCommand command;
    *command.mutable_work() = work;
    return children_[static_cast<size_t>(rank) - 1]->socket().Send(command, kSendTimeout);
  }
  std::string LossReason(absl::Duration patience) override { return watch_->AwaitReason(patience); }
  std::vector<RankReport> Reports() const override { return watch_->reports(); }

 private:
  const std::shared_ptr<RankStates> watch_;
  std::unique_ptr<Communicator> communicator_;
  std::vector<std::unique_ptr<ChildRank>> children_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<RankGroup>> ChildRankStarter::Start(int ranks) {
  return ChildRankGroup::Start(options_, ranks);
}

}  // namespace freshet
