#include "local/local_command.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "base/exit_code.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mutex.h"
#include "base/status_macros.h"
#include "base/str_cat.h"
#include "controller/status_page/status_routes.h"
#include "job/job_mode.h"
#include "job/job_parser.h"
#include "job/job_yaml.h"
#include "local/crash_point.h"
#include "local/local_run.h"
#include "local/local_services.h"
#include "local/local_status.h"
#include "local/run_summary.h"

namespace freshet {
namespace {

constexpr uint64_t kMaxJobBytes = 4 << 20;

absl::StatusOr<JobResult> ReadJob(const LocalCommand& command) {
  const bool resume = !command.resume_dir.empty();
  const std::string path = resume ? command.resume_dir + "/job.yaml" : command.job_file;
  FRESHET_ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kMaxJobBytes));
  JobResult job = ParseJob(text, path, command.overrides);
  if (job.errors.empty()) job.errors = CheckMode(job.spec, job.places, JobMode::kLocal);
  if (!job.errors.empty()) return InvalidArgument(FormatConfigErrors(job.errors));
  return job;
}

DisplayOptions TerminalOptions(const JobSpec& spec, int fd) {
  DisplayOptions options;
  options.terminal = ::isatty(fd) == 1;
  options.color = options.terminal && std::getenv("NO_COLOR") == nullptr;
  if (options.terminal) {
    options.measure_width = [fd] {
      winsize size{};
      return ::ioctl(fd, TIOCGWINSZ, &size) == 0 ? int{size.ws_col} : 0;
    };
    if (const int width = options.measure_width(); width > 0) options.width = width;
  }
  options.total_steps = spec.trainer().steps();
  options.staleness_bound = spec.staleness().max();
  return options;
}

// Turns SIGINT and SIGTERM into a drain of the attached run. A second signal, or any signal while
// no run is attached, ends the process at once. Create it before any other thread, so that all
// threads block the signals.
class SignalWatcher {
 public:
  SignalWatcher() {
    sigemptyset(&signals_);
    sigaddset(&signals_, SIGINT);
    sigaddset(&signals_, SIGTERM);
    sigaddset(&signals_, SIGUSR1);  // stops the watcher itself
    pthread_sigmask(SIG_BLOCK, &signals_, nullptr);
    thread_ = std::thread([this] {
      int signal = 0;
      while (sigwait(&signals_, &signal) == 0 && signal != SIGUSR1) StopOrExit();
    });
  }
  // Null detaches the run.
  void Attach(LocalRun* run) {
    const MutexLock lock(mu_);
    run_ = run;
  }
  ~SignalWatcher() {
    pthread_kill(thread_.native_handle(), SIGUSR1);
    thread_.join();
  }

 private:
  void StopOrExit() {
    const MutexLock lock(mu_);
    if (run_ == nullptr || stopping_) ::_exit(kExitInterrupted);
    stopping_ = true;
    run_->RequestStop();
  }

  sigset_t signals_;
  Mutex mu_;
  LocalRun* run_ ABSL_GUARDED_BY(mu_) = nullptr;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  std::thread thread_;
};

void WriteStdout(const std::string& line) {
  static std::mutex mutex;
  const std::lock_guard<std::mutex> lock(mutex);
  std::printf("%s\n", line.c_str());
  std::fflush(stdout);
}

// Warns of keys that only apply to a cluster.
void WarnOfIgnoredKeys(const JobSpec& spec) {
  if (spec.pool() == "default") return;
  FRESHET_LOG(Warning) << "event=key_ignored pool=" << spec.pool()
                       << " reason=\"freshet local has one engine\"";
}

int Execute(const LocalCommand& command, const JobSetup& setup, const RunFolder& folder,
            ResumePoint resume, SignalWatcher& signals, FaultPoints& faults) {
  // Under --json stdout is for scripts, so the display goes to stderr.
  std::FILE* out = command.json ? stderr : stdout;
  Display display(TerminalOptions(setup.spec, fileno(out)), [out](std::string_view text) {
    std::fwrite(text.data(), 1, text.size(), out);
    std::fflush(out);
  });
  LocalStatus status(setup.spec, SystemClock::Get());
  std::unique_ptr<runtime::HttpServer> page;
  if (!command.status_listen.empty()) {
    status.LoadHistory(folder.File("metrics.jsonl"), folder.File("samples.jsonl"));
    auto served = ServeStatusPage(command.status_listen, status);
    if (!served.ok()) {
      PrintError(served.status());
      return ContentExitCode(served.status());
    }
    page = *std::move(served);
    display.ShowNote(StrCat("status page: http://", page->address(), "/"));
  }
  LocalRunOptions options;
  options.status = &status;
  options.resume = std::move(resume);
  options.metrics_port = command.metrics_port;
  if (command.json) options.rows = WriteStdout;
  LocalRun run(setup, folder, display, SystemClock::Get(), faults, options);
  signals.Attach(&run);
  const absl::Cleanup detach = [&signals] { signals.Attach(nullptr); };
  const absl::StatusOr<RunResult> result = run.Run();
  if (result.ok() && result->outcome == RunOutcome::kAlreadyFinished) {
    display.ShowNote(StrCat("the run is finished already: all ", result->committed, " steps of ",
                            folder.path(), " are done"));
    return kExitDone;
  }
  display.ShowSummary(DescribeEnd(setup.spec, folder.path(), result.status()));
  if (result.ok()) return kExitDone;
  PrintError(result.status());
  if (result.status().code() == absl::StatusCode::kInternal) return kExitInternal;
  return result.status().code() == absl::StatusCode::kResourceExhausted ? kExitContent
                                                                        : kExitJobFailed;
}

}  // namespace

int RunLocalCommand(const LocalCommand& command) {
  SetLogRole("local");
  SignalWatcher signals;
  absl::StatusOr<std::unique_ptr<FaultPoints>> faults = MakeFaultPoints(command.crash_at);
  if (!faults.ok()) {
    PrintError(faults.status());
    return kExitCommandLine;
  }
  const absl::StatusOr<JobResult> job = ReadJob(command);
  if (!job.ok()) {
    PrintError(job.status());
    return ContentExitCode(job.status());
  }
  const absl::StatusOr<std::unique_ptr<JobSetup>> setup =
      PrepareJob(job->spec, job->places, ConnectedScorers());
  if (!setup.ok()) {
    PrintError(setup.status());
    return ContentExitCode(setup.status());
  }
  const bool resume = !command.resume_dir.empty();
  const std::string run_dir = resume                    ? command.resume_dir
                              : command.run_dir.empty() ? "runs/" + job->spec.name()
                                                        : command.run_dir;
  absl::StatusOr<RunFolder> folder =
      resume ? RunFolder::Open(run_dir) : RunFolder::Create(run_dir, WriteJobYaml(job->spec));
  if (!folder.ok()) {
    PrintError(folder.status());
    return ContentExitCode(folder.status());
  }
  absl::StatusOr<ResumePoint> resume_point = FindResumePoint(*folder, (*setup)->store);
  if (!resume_point.ok()) {
    PrintError(resume_point.status());
    return ContentExitCode(resume_point.status());
  }
  if (resume && !command.overrides.empty()) {
    const absl::Status replaced = folder->ReplaceJob(WriteJobYaml(job->spec));
    if (!replaced.ok()) {
      PrintError(replaced);
      return ContentExitCode(replaced);
    }
  }
  WarnOfIgnoredKeys(job->spec);
  return Execute(command, **setup, *folder, *std::move(resume_point), signals, **faults);
}

}  // namespace freshet
