#include "trainer/ranks/child_ranks.h"

#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <thread>
#include <utility>

#include "base/log.h"
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

constexpr absl::Duration kSendTimeout = absl::Seconds(30);

// The folder in which the ranks of a group find each other.
class RendezvousFolder {
 public:
  RendezvousFolder() {
    std::string path = (std::filesystem::temp_directory_path() / "freshet-ranks-XXXXXX").string();
    if (::mkdtemp(path.data()) != nullptr) path_ = path;
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
  for (const std::string& argument : argv) arguments.push_back(const_cast<char*>(argument.c_str()));
  arguments.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, standard_input, STDIN_FILENO);
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

// A child and the thread that listens to it.
class ChildRank {
 public:
  // `on_lost` is called on another thread, at most once.
  static absl::StatusOr<std::unique_ptr<ChildRank>> Start(
      const ChildRankOptions& options, const trainer::v1::RankStart& start,
      std::function<void(const std::string& reason)> on_lost) {
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
        std::thread([&child = *child, rank = start.rank(), options, on_lost = std::move(on_lost)] {
          const std::string reason = child.Listen(options);
          if (child.ending_.HasBeenNotified()) return;
          on_lost(StrCat("rank ", rank, " ", reason));
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
  RankReport last_report() const {
    const MutexLock lock(mu_);
    return last_;
  }

 private:
  ChildRank(pid_t pid, UniqueFd fd) : pid_(pid), socket_(std::move(fd)) {}

  // Returns what became of the child.
  std::string Listen(const ChildRankOptions& options) {
    RankReport report;
    absl::Duration patience = options.start_timeout;
    while (true) {
      const absl::Status received = socket_.Receive(report, patience);
      if (absl::IsUnavailable(received)) {
        Kill();
        return Reap();
      }
      if (!received.ok()) {
        Kill();
        return absl::IsDeadlineExceeded(received)
                   ? StrCat("has said nothing for ", absl::FormatDuration(patience))
                   : std::string(Message(received));
      }
      if (report.state() == RankReport::STATE_FAILED) return StrCat("failed: ", report.error());
      const MutexLock lock(mu_);
      last_ = report;
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
    int status = 0;
    if (reaped_ || ::waitpid(pid_, &status, 0) != pid_) return "has ended";
    reaped_ = true;
    if (WIFSIGNALED(status)) return StrCat("was ended by signal ", WTERMSIG(status));
    return StrCat("has ended with exit code ", WEXITSTATUS(status));
  }

  const pid_t pid_;
  MessageSocket socket_;
  Notification ending_;
  mutable Mutex mu_;
  bool reaped_ ABSL_GUARDED_BY(mu_) = false;
  RankReport last_ ABSL_GUARDED_BY(mu_);
  std::thread listener_;
};

class ChildRankGroup final : public RankGroup {
 public:
  static absl::StatusOr<std::unique_ptr<RankGroup>> Start(const ChildRankOptions& options,
                                                          int ranks) {
    auto group = std::make_unique<ChildRankGroup>();
    if (!group->folder_.ok()) return Unavailable("no folder for the ranks in the temporary one");
    trainer::v1::RankStart start = options.start;
    start.set_ranks(ranks);
    start.set_rendezvous_file(group->folder_.file());
    for (int rank = 1; rank < ranks; ++rank) {
      start.set_rank(rank);
      FRESHET_ASSIGN_OR_RETURN(
          auto child,
          ChildRank::Start(options, start, [lost = group->lost_](const std::string& reason) {
            lost->Report(reason);
          }));
      group->children_.push_back(std::move(child));
    }
    GlooOptions gloo;
    gloo.size = ranks;
    gloo.rendezvous_file = start.rendezvous_file();
    gloo.connect_timeout = options.start_timeout;
    absl::StatusOr<std::unique_ptr<Communicator>> connected = ConnectGloo(gloo);
    if (!connected.ok()) {
      const std::string reason = group->lost_->reason();
      return reason.empty() ? connected.status() : absl::UnavailableError(reason);
    }
    group->communicator_ = *std::move(connected);
    group->lost_->Watch(group->communicator_.get());
    return group;
  }

  ~ChildRankGroup() override {
    lost_->Watch(nullptr);
    children_.clear();
  }

  Communicator& communicator() override { return *communicator_; }
  absl::Status Send(int rank, const trainer::v1::RankWork& work) override {
    RankCommand command;
    *command.mutable_work() = work;
    return children_[static_cast<size_t>(rank) - 1]->socket().Send(command, kSendTimeout);
  }
  std::vector<RankReport> Reports() const override {
    std::vector<RankReport> reports;
    for (const auto& child : children_) reports.push_back(child->last_report());
    return reports;
  }

 private:
  // Aborts the communicator once a rank is lost.
  class Lost {
   public:
    void Report(const std::string& reason) {
      const MutexLock lock(mu_);
      if (reason_.empty()) reason_ = reason;
      if (communicator_ != nullptr) communicator_->Abort(reason_);
    }
    void Watch(Communicator* communicator) {
      const MutexLock lock(mu_);
      communicator_ = communicator;
      if (communicator != nullptr && !reason_.empty()) communicator->Abort(reason_);
    }
    std::string reason() {
      const MutexLock lock(mu_);
      return reason_;
    }

   private:
    Mutex mu_;
    std::string reason_ ABSL_GUARDED_BY(mu_);
    Communicator* communicator_ ABSL_GUARDED_BY(mu_) = nullptr;
  };

  RendezvousFolder folder_;
  const std::shared_ptr<Lost> lost_ = std::make_shared<Lost>();
  std::unique_ptr<Communicator> communicator_;
  std::vector<std::unique_ptr<ChildRank>> children_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<RankGroup>> ChildRankStarter::Start(int ranks) {
  return ChildRankGroup::Start(options_, ranks);
}

}  // namespace freshet
