#include "cli/cluster/cluster_daemon.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <system_error>

#include "absl/status/statusor.h"
#include "absl/time/clock.h"
#include "base/clock.h"
#include "base/exit_code.h"
#include "base/file.h"
#include "base/status_macros.h"
#include "base/str_cat.h"
#include "base/unique_fd.h"
#include "cli/cluster/cluster_state.h"
#include "cli/cluster/posix_process_host.h"
#include "cli/cluster/replica_watcher.h"
#include "cli/cluster/rotating_log.h"
#include "cli/cluster/supervisor.h"
#include "datastore/redis/redis_acl.h"
#include "services/runtime/channel.h"
#include "services/runtime/process_identity.h"

namespace freshet {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kMaxLogBytes = 1 << 20;
constexpr absl::Duration kTick = absl::Milliseconds(100);
// Consecutive deaths of one process that abort the start of a cluster.
constexpr int kMaxFailures = 3;

absl::Status WriteSecret(const std::string& path, const std::string& text) {
  const UniqueFd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
  // open() keeps the mode of an existing file.
  if (fd.get() < 0 || ::fchmod(fd.get(), 0600) != 0) return WriteError(path, errno);
  return WriteAll(fd.get(), text, path);
}

absl::Status PrepareFolders(const ClusterLayout& layout) {
  for (const std::string& folder :
       {layout.folder + "/logs", layout.RedisFolder(), layout.TrainerFolder()}) {
    std::error_code error;
    fs::create_directories(folder, error);
    if (error) return WriteError(folder, error.value());
  }
  std::map<std::string, std::string> passwords = {{"default", runtime::RandomId()}};
  for (const auto& [role, rules] : RedisRoles()) passwords[role] = runtime::RandomId();
  for (const auto& [user, password] : passwords) {
    FRESHET_RETURN_IF_ERROR(WriteSecret(layout.PasswordFile(user), password + "\n"));
  }
  // Kept over restarts: clients that run go on.
  if (!runtime::ReadBearerToken(layout.TokenFile(), nullptr).ok()) {
    FRESHET_RETURN_IF_ERROR(WriteSecret(layout.TokenFile(), runtime::RandomId() + "\n"));
  }
  return WriteSecret(layout.RedisConfig(), RedisConfigText(layout, RedisAclText(passwords)));
}

// Exclusive lock of a cluster's folder, released by the kernel when the process ends. Not inherited
// by child processes. FAILED_PRECONDITION: another process holds it; NOT_FOUND: the file cannot be
// opened.
absl::StatusOr<UniqueFd> TakeLock(const std::string& path) {
  UniqueFd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (fd.get() < 0) return NotFound(path, ": cannot be opened: ", std::strerror(errno));
  if (::flock(fd.get(), LOCK_EX | LOCK_NB) == 0) return fd;
  return FailedPrecondition(path, ": the cluster runs already; freshet cluster status shows it");
}

// Reports progress to the log and to the command that waits for the start.
class Reporter {
 public:
  Reporter(const ClusterLayout& layout, int progress_fd)
      : log_(layout.LogFile("supervisor"), kMaxLogBytes), fd_(progress_fd) {}
  ~Reporter() { Close(); }
  Reporter(const Reporter&) = delete;
  Reporter& operator=(const Reporter&) = delete;

  void Say(std::string_view line) {
    log_.Write(StrCat(absl::FormatTime("%Y-%m-%dT%H:%M:%E3SZ", absl::Now(), absl::UTCTimeZone()),
                      " ", line, "\n"));
    const std::string text = StrCat(line, "\n");
    const int fd = fd_ >= 0 ? fd_ : closed_ ? -1 : STDERR_FILENO;
    if (fd >= 0 && ::write(fd, text.data(), text.size()) < 0) Close();
  }
  // The waiting command has been told; close its descriptor.
  void Close() {
    if (fd_ < 0) return;
    ::close(fd_);
    fd_ = -1;
    closed_ = true;
  }

 private:
  RotatingLog log_;
  int fd_;
  bool closed_ = false;
};

class Daemon {
 public:
  Daemon(const ClusterLayout& layout, const DaemonOptions& options, Reporter& reporter)
      : layout_(layout),
        options_(options),
        reporter_(reporter),
        host_([this](const ProcessId& id) { return layout_.LogFile(id.Name()); }),
        supervisor_(layout, host_, SystemClock::Get(),
                    [this](std::string_view line) { reporter_.Say(line); }) {}

  int Run() {
    const absl::Time deadline = absl::Now() + options_.up_timeout;
    int code = kExitDone;
    bool up = false;
    while (!supervisor_.Done()) {
      supervisor_.Tick(kTick);
      if (host_.stop_signals() > 0) supervisor_.Stop();
      if (host_.stop_signals() > 1) return kExitInterrupted;  // the host kills the rest
      if (!up && supervisor_.Ready()) {
        up = true;
        WriteState();
        reporter_.Say(kUpLine);
        reporter_.Close();
      }
      if (!up && code == kExitDone && host_.stop_signals() == 0) code = CheckStart(deadline);
      Follow();
      WriteState();
    }
    follower_.reset();
    ::unlink(layout_.StateFile().c_str());
    return code;
  }

 private:
  // Aborts a start that can no longer succeed.
  int CheckStart(absl::Time deadline) {
    const std::string failed = supervisor_.FailedRepeatedly(kMaxFailures);
    if (failed.empty() && absl::Now() < deadline) return kExitDone;
    if (failed.empty()) {
      reporter_.Say(StrCat("the cluster was not ready after ",
                           absl::FormatDuration(options_.up_timeout), Unready(), "; logs are in ",
                           layout_.folder, "/logs; --timeout S waits longer"));
    } else {
      reporter_.Say(StrCat(failed, " keeps dying; its log ends with:"));
      reporter_.Say(LogTail(failed));
      reporter_.Say(StrCat("all of it: ", layout_.LogFile(failed)));
    }
    supervisor_.Stop();
    return kExitInternal;
  }

  // "; not ready: NAME, NAME", or "" if all that run are ready.
  std::string Unready() const {
    std::string names;
    for (const ProcessRecord& record : supervisor_.records()) {
      if (record.phase != Phase::kReady) names += (names.empty() ? "" : ", ") + record.id.Name();
    }
    return names.empty() ? "" : StrCat("; not ready: ", names);
  }

  std::string LogTail(const std::string& process) const {
    constexpr size_t kMost = 2000;
    const absl::StatusOr<std::string> text = ReadFile(layout_.LogFile(process), 16 << 20);
    if (!text.ok()) return "";
    std::string tail = text->substr(text->size() - std::min(text->size(), kMost));
    while (!tail.empty() && tail.back() == '\n') tail.pop_back();
    return tail;
  }

  void Follow() {
    if (follower_ == nullptr) {
      if (!supervisor_.Ready()) return;
      absl::StatusOr<std::unique_ptr<ReplicaWatcher>> follower =
          ReplicaWatcher::Start(layout_.Controllers(), layout_.wanted, layout_.TokenFile());
      if (!follower.ok()) return;
      follower_ = *std::move(follower);
    }
    supervisor_.SetWanted(follower_->wanted());
  }

  void WriteState() {
    const int64_t revision = supervisor_.revision();
    const bool ready = supervisor_.Ready();
    if (revision == written_ && ready == written_ready_) return;
    ClusterState state;
    state.name = layout_.name;
    state.supervisor = {::getpid(), StartTicks(::getpid())};
    state.started = started_;
    state.ready = ready;
    state.stopping = host_.stop_signals() > 0;
    state.controller = layout_.Controllers();
    state.redis_port = layout_.redis_port;
    state.wanted = layout_.wanted;
    state.processes = supervisor_.records();
    const absl::Status status = WriteFileAtomically(layout_.StateFile(), StateToJson(state));
    if (!status.ok() && !complained_) reporter_.Say(Message(status));
    complained_ = !status.ok();
    written_ = revision;
    written_ready_ = ready;
  }

  const ClusterLayout& layout_;
  const DaemonOptions& options_;
  Reporter& reporter_;
  const absl::Time started_ = absl::Now();
  PosixProcessHost host_;
  Supervisor supervisor_;
  std::unique_ptr<ReplicaWatcher> follower_;
  int64_t written_ = -1;
  bool written_ready_ = false;
  bool complained_ = false;
};

}  // namespace

int RunClusterDaemon(const ClusterLayout& layout, const DaemonOptions& options) {
  ::signal(SIGPIPE, SIG_IGN);
  std::error_code error;
  fs::create_directories(layout.folder + "/logs", error);
  fs::permissions(layout.folder, fs::perms::owner_all, error);
  Reporter reporter(layout, options.progress_fd);
  const absl::StatusOr<UniqueFd> lock = TakeLock(layout.LockFile());
  if (!lock.ok()) {
    reporter.Say(Message(lock.status()));
    return kExitContent;
  }
  const absl::Status prepared = PrepareFolders(layout);
  if (!prepared.ok()) {
    reporter.Say(Message(prepared));
    return kExitContent;
  }
  return Daemon(layout, options, reporter).Run();
}

}  // namespace freshet
