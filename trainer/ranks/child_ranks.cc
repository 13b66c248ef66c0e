#include "trainer/ranks/child_ranks.h"

#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <utility>

#include "base/mutex.h"
#include "base/status_macros.h"
#include "base/str_cat.h"
#include "trainer/ranks/message_socket.h"

namespace freshet {
namespace {

template <typename... Args>
absl::Status Unavailable(const Args&... args) {
  return StatusOf(absl::StatusCode::kUnavailable, args...);
}

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

class ChildProcess final : public RankPeer {
 public:
  explicit ChildProcess(pid_t pid) : pid_(pid) {}
  ~ChildProcess() override {
    ChildProcess::Kill();
    ChildProcess::Ending();
  }

  void Kill() override {
    const MutexLock lock(mu_);
    if (!reaped_) ::kill(pid_, SIGKILL);
  }
  std::string Ending() override {
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

 private:
  const pid_t pid_;
  Mutex mu_;
  bool reaped_ ABSL_GUARDED_BY(mu_) = false;
};

absl::StatusOr<RankLink> StartChild(const std::vector<std::string>& argv, int number) {
  FRESHET_ASSIGN_OR_RETURN(auto ends, SocketPair());
  FRESHET_ASSIGN_OR_RETURN(const pid_t pid, Spawn(argv, ends.second.get()));
  return RankLink{number, std::move(ends.first), std::make_unique<ChildProcess>(pid)};
}

}  // namespace

absl::StatusOr<std::unique_ptr<RankGroup>> ChildRankStarter::Start(int ranks) {
  const auto folder = std::make_shared<const RendezvousFolder>();
  if (!folder->ok()) return Unavailable("cannot make a folder for temporary files; set TMPDIR");
  RankLinkOptions options = options_;
  options.start.set_rendezvous_file(folder->file());
  options.file_owner = folder;
  std::vector<RankLink> links;
  for (int rank = 1; rank < ranks; ++rank) {
    FRESHET_ASSIGN_OR_RETURN(RankLink link, StartChild(argv_, rank));
    links.push_back(std::move(link));
  }
  return ConnectRanks(std::move(links), options);
}

}  // namespace freshet
