#include "local/local_command.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "base/exit_code.h"
#include "base/interrupt.h"
#include "base/log.h"
#include "base/mutex.h"
#include "base/status_macros.h"
#include "base/str_cat.h"
#include "controller/status_page/status_routes.h"
#include "job/job_mode.h"
#include "job/job_parser.h"
#include "job/job_yaml.h"
#include "local/crash_point.h"
#include "local/job_plan.h"
#include "local/local_run.h"
#include "local/local_services.h"
#include "local/local_status.h"
#include "local/run_summary.h"
#include "local/state_reloads.h"
#include "local/team_command.h"
#include "model/gpu.h"
#include "rollout/worker/rollout_setup.h"
#include "runlog/report.h"
#include "trainer/loop/trainer_setup.h"
#include "trainer/rank_process.h"

namespace freshet {
namespace {

absl::StatusOr<std::vector<JobResult>> ReadLocalJobs(const LocalCommand& command) {
  const bool resume = !command.resume_dir.empty();
  return ReadJobs(resume ? command.resume_dir + "/job.yaml" : command.job_file, command.overrides);
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

// The run that SIGINT and SIGTERM drain. A second signal, or any signal while no run is attached,
// ends the process at once.
class SignalTarget {
 public:
  // Null detaches the run.
  void Attach(LocalRun* run) {
    const MutexLock lock(mu_);
    run_ = run;
  }
  void Signal(int count) {
    const MutexLock lock(mu_);
    if (run_ == nullptr || count > 1) ::_exit(kExitInterrupted);
    run_->RequestStop();
  }

 private:
  Mutex mu_;
  LocalRun* run_ ABSL_GUARDED_BY(mu_) = nullptr;
};

void WriteStdout(const std::string& line) {
  std::printf("%s\n", line.c_str());
  std::fflush(stdout);
}

// Warns of keys that only apply to a cluster. The policies of a team have a pool each for that.
void WarnOfIgnoredKeys(const JobSpec& spec) {
  if (spec.pool() == "default" || !spec.team().empty()) return;
  FRESHET_LOG(Warning) << "event=key_ignored pool=" << spec.pool()
                       << " reason=\"freshet local has one engine\"";
}

// Runs the job, and goes on from the newest checkpoint whenever the learner's state is lost.
absl::StatusOr<RunResult> RunToEnd(const JobSetup& setup, const RunFolder& folder, Display& display,
                                   LocalRunOptions options, SignalTarget& signals,
                                   FaultPoints& faults) {
  StateReloads allowed;
  while (true) {
    LocalRun run(setup, folder, display, SystemClock::Get(), faults, options);
    signals.Attach(&run);
    const absl::Cleanup detach = [&signals] { signals.Attach(nullptr); };
    absl::StatusOr<RunResult> result = run.Run();
    if (!result.ok() || result->outcome != RunOutcome::kStateLost) return result;
    if (!allowed.Next(result->committed)) {
      FRESHET_RETURN_IF_ERROR(WriteReport(folder.path()));
      return StatusOf(absl::StatusCode::kUnavailable, result->reason,
                      ", for the 5th time in a row without a new step; continue with --resume ",
                      folder.path());
    }
    display.ShowNote(StrCat(result->reason, "; continuing from the newest checkpoint"));
    FRESHET_ASSIGN_OR_RETURN(options.resume, FindResumePoint(folder, setup.store));
  }
}

absl::StatusOr<int> Execute(const LocalCommand& command, const JobSetup& setup,
                            const RunFolder& folder, ResumePoint resume, SignalTarget& signals,
                            FaultPoints& faults) {
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
    FRESHET_ASSIGN_OR_RETURN(page, ServeStatusPage(command.status_listen, status));
    display.ShowNote(StrCat("status page: http://", page->address(), "/"));
  }
  LocalRunOptions options;
  options.status = &status;
  options.resume = std::move(resume);
  options.metrics_port = command.metrics_port;
  options.ended_policy = EndedPolicy();
  const bool of_team = options.ended_policy != nullptr;
  if (command.json) options.rows = WriteStdout;
  const absl::StatusOr<RunResult> result =
      RunToEnd(setup, folder, display, std::move(options), signals, faults);
  if (result.ok() && result->outcome == RunOutcome::kAlreadyFinished) {
    display.ShowNote(StrCat("the run is finished already: all ", result->committed, " steps of ",
                            folder.path(), " are done"));
    return kExitDone;
  }
  SummaryView summary = DescribeEnd(setup.spec, folder.path(), result.status());
  if (result.ok() && result->outcome == RunOutcome::kEndedWithTeam) {
    summary.outcome = result->reason;
    summary.resume_command.clear();  // it would end in the same way
  }
  display.ShowSummary(summary);
  if (result.ok()) {
    // Exit code 0 would tell the others of the team that no more prompts can be played.
    const bool interrupted = result->outcome == RunOutcome::kInterrupted;
    return of_team && interrupted ? kExitJobCancelled : kExitDone;
  }
  PrintError(result.status());
  if (result.status().code() == absl::StatusCode::kInternal) return kExitInternal;
  return result.status().code() == absl::StatusCode::kResourceExhausted ? kExitContent
                                                                        : kExitJobFailed;
}

// Whether this machine, and its GPU if the job uses one, has the memory.
absl::Status CheckMemoryOfJob(const JobSetup& setup, const ContainerLimits& limits) {
  const auto learner = MakeLearnerOptions(setup.spec, setup.model.config, setup.loss);
  FRESHET_ASSIGN_OR_RETURN(const std::optional<Gpu> trains, FindGpu(learner.device));
  FRESHET_ASSIGN_OR_RETURN(const std::optional<Gpu> generates,
                           FindGpu(MakeEngineOptions(setup.spec, limits).device));
  const JobPlan plan =
      PlanJob(setup, limits, /*hardware=*/nullptr, {trains.has_value(), generates.has_value()});
  const std::optional<Gpu>& gpu = trains.has_value() ? trains : generates;
  if (trains.has_value()) {
    FRESHET_RETURN_IF_ERROR(CheckGpuOfEachRank(setup.spec.trainer().ranks()));
  }
  if (gpu.has_value()) {
    FRESHET_RETURN_IF_ERROR(WarnOrFail(
        CheckMemory(StrCat("on ", gpu->device, ", the job"), plan.local_gpu, gpu->free_bytes)));
  }
  return WarnOrFail(CheckMemory("the job", plan.local.memory, UsableMemory(limits)));
}

absl::StatusOr<int> RunJob(const LocalCommand& command, const JobResult& job, SignalTarget& signals,
                           FaultPoints& faults) {
  const std::vector<ConfigError> errors = CheckMode(job.spec, job.places, JobMode::kLocal);
  if (!errors.empty()) return InvalidArgument(FormatConfigErrors(errors));
  FRESHET_ASSIGN_OR_RETURN(const ServiceScorers services, ConnectedScorers(command.rewards));
  FRESHET_ASSIGN_OR_RETURN(const std::unique_ptr<JobSetup> setup,
                           PrepareJob(job.spec, job.places, services));
  const ContainerLimits limits = ReadContainerLimits();
  FRESHET_RETURN_IF_ERROR(CheckMemoryOfJob(*setup, limits));
  const bool resume = !command.resume_dir.empty();
  const std::string new_dir = command.run_dir.empty() ? "runs/" + job.spec.name() : command.run_dir;
  FRESHET_ASSIGN_OR_RETURN(RunFolder folder,
                           resume ? RunFolder::Open(command.resume_dir)
                                  : RunFolder::Create(new_dir, WriteJobYaml(job.spec)));
  FRESHET_ASSIGN_OR_RETURN(ResumePoint resume_point, FindResumePoint(folder, setup->store));
  if (resume && !command.overrides.empty()) {
    FRESHET_RETURN_IF_ERROR(folder.ReplaceJob(WriteJobYaml(job.spec)));
  }
  WarnOfIgnoredKeys(job.spec);
  return Execute(command, *setup, folder, std::move(resume_point), signals, faults);
}

}  // namespace

int RunLocalCommand(const LocalCommand& command) {
  SetLogRole("local");
  EndWithTeam();
  if (!command.resume_dir.empty()) {
    const auto policies = FindPolicyRuns(command.resume_dir);
    if (!policies.ok()) return FailContent(policies.status());
    if (!policies->empty()) return ResumeTeam(command, *policies);
  }
  const absl::StatusOr<std::vector<JobResult>> jobs = ReadLocalJobs(command);
  if (!jobs.ok()) return FailContent(jobs.status());
  if (jobs->size() > 1) return StartTeam(command, *jobs);
  SignalTarget signals;
  const Interrupt interrupt([&signals](int count) { signals.Signal(count); });
  const absl::StatusOr<std::unique_ptr<FaultPoints>> faults = MakeFaultPoints(command.crash_at);
  const absl::StatusOr<int> code =
      faults.ok() ? RunJob(command, jobs->front(), signals, **faults) : faults.status();
  if (code.ok()) return *code;
  PrintError(code.status());
  return faults.ok() ? ContentExitCode(code.status()) : kExitCommandLine;
}

}  // namespace freshet
