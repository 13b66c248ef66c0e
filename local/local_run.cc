#include "local/local_run.h"

#include <algorithm>
#include <filesystem>
#include <stop_token>
#include <thread>
#include <utility>
#include <vector>

#include "base/log.h"
#include "base/status_macros.h"
#include "base/str_cat.h"
#include "controller/jobs/plan/call_limits.h"
#include "controller/jobs/plan/death_reason.h"
#include "controller/jobs/plan/watchdog.h"
#include "job/eval_sets.h"
#include "local/run_roles.h"
#include "local/team_watch.h"
#include "model/torch_threads.h"
#include "runlog/report.h"

namespace freshet {
namespace {

constexpr absl::Duration kControlPeriod = absl::Milliseconds(50);
constexpr int64_t kMostLoggedDeaths = 8;  // of a burst
// While the trainer waits for an evaluation.
constexpr absl::Duration kAwaitedEvaluationPeriod = absl::Milliseconds(5);

// FAILED_PRECONDITION: a component of the reward has no call left.
absl::Status CheckCalls(const JobSpec& spec, const InMemoryCallBudget& calls) {
  const std::string used_up = FindCallsUsedUp(spec.reward(), calls.Read());
  return used_up.empty() ? absl::OkStatus() : FailedPrecondition(used_up);
}

}  // namespace

// What Run() works with.
struct LocalRun::Work {
  explicit Work(TeamWatch watch) : team(std::move(watch)) {}

  RunRoles roles;
  DeathWatch deaths;
  std::vector<DeadLetter> dead;  // the newest ones, newest first
  int64_t deaths_logged = 0;
  TeamWatch team;
  std::string team_end;  // why the run ends with its team; "" if it does not

  // Set by the role threads. `failure` is the first error of any role.
  Mutex mu;
  absl::Status failure ABSL_GUARDED_BY(mu);
  bool trainer_done ABSL_GUARDED_BY(mu) = false;

  std::stop_source stop_trainer;
  std::stop_source stop_workers;
  std::vector<std::jthread> threads;
  std::jthread trainer_thread;

  void Fail(const absl::Status& status) {
    if (status.ok()) return;
    MutexLock lock(mu);
    if (failure.ok()) failure = status;
  }
  absl::Status Failure() {
    MutexLock lock(mu);
    return failure;
  }
};

LocalRun::LocalRun(const JobSetup& setup, const RunFolder& folder, Display& display,
                   const Clock& clock, FaultPoints& faults, LocalRunOptions options)
    : setup_(setup),
      folder_(folder),
      display_(display),
      clock_(clock),
      faults_(faults),
      options_(std::move(options)) {}

LocalRun::~LocalRun() = default;

void LocalRun::RequestStop() {
  MutexLock lock(mu_);
  stop_requested_ = true;
  turn_due_ = true;
  wake_.NotifyAll();
}

void LocalRun::WakeController() {
  MutexLock lock(mu_);
  turn_due_ = true;
  wake_.NotifyAll();
}

bool LocalRun::StopRequested() {
  MutexLock lock(mu_);
  return stop_requested_;
}

absl::StatusOr<RunResult> LocalRun::Run() {
  Work work(TeamWatch(options_.ended_policy, setup_.spec, clock_));
  work.roles.start = clock_.Now();
  const int64_t trained = options_.resume.origin.policy.version;
  const std::vector<job::v1::EvalSet> sets = EvalSets(setup_.spec);
  const bool evaluated = std::all_of(sets.begin(), sets.end(), [&](const job::v1::EvalSet& set) {
    return options_.resume.evaluated.contains(set.name());
  });
  if (trained >= setup_.spec.trainer().steps() && evaluated) {
    if (!std::filesystem::exists(folder_.File("report.html"))) {
      FRESHET_RETURN_IF_ERROR(WriteReport(folder_.path()));
    }
    return RunResult{RunOutcome::kAlreadyFinished, trained, ""};
  }
  // Roles share the cores as threads; intra-op threads in each would oversubscribe them.
  UseOneTorchThread();
  const RunContext context{
      setup_, folder_, display_, clock_, faults_, options_, [this] { return StopRequested(); }};
  FRESHET_RETURN_IF_ERROR(LoadLearner(context, work.roles));
  if (StopRequested()) return RunResult{RunOutcome::kInterrupted, 0, ""};
  FRESHET_RETURN_IF_ERROR(MakeRoles(context, work.roles));
  if (options_.status != nullptr) {
    options_.status->Watch(work.roles.store.get(), work.roles.rollout.get(),
                           work.roles.reward_workers.front().get());
    options_.status->SetState(job::v1::JOB_STATE_RUNNING, "the trainer is at work");
  }
  StartThreads(work);
  absl::Status status = Control(work);
  if (status.ok() && !StopRequested()) status = FinalEvaluation(work);
  StopThreads(work);
  work.roles.trainer->RecordScores();
  if (options_.status != nullptr) options_.status->Watch(nullptr, nullptr);
  const absl::Status exported = work.roles.recorder->ExportLedger();
  if (const absl::Status failure = work.Failure();
      !failure.ok() && !StopRequested() && exported.ok() && work.roles.trained->StateLost()) {
    return RunResult{RunOutcome::kStateLost, work.roles.trainer->committed(), Message(failure)};
  }
  // A role's failure takes precedence over the errors that it caused in others.
  if (const absl::Status failure = work.Failure();
      !failure.ok() && (status.ok() || absl::IsCancelled(status))) {
    status = failure;
  }
  if (status.ok()) status = exported;
  const absl::Status report = WriteReport(folder_.path());
  if (status.ok()) status = report;
  FRESHET_RETURN_IF_ERROR(status);
  const int64_t committed = work.roles.trainer->committed();
  const RunOutcome early =
      work.team_end.empty() ? RunOutcome::kInterrupted : RunOutcome::kEndedWithTeam;
  return RunResult{committed >= setup_.spec.trainer().steps() ? RunOutcome::kFinished : early,
                   committed, work.team_end};
}

void LocalRun::StartThreads(Work& work) {
  const std::stop_token stop = work.stop_workers.get_token();
  work.threads.emplace_back([&work, stop] { work.Fail(work.roles.feeder->Run(stop)); });
  for (const auto& worker : work.roles.reward_workers) {
    work.threads.emplace_back([&worker, stop] { worker->Run(stop); });
  }
  work.threads.emplace_back([&work, stop] {
    UseOneTorchThread();
    work.Fail(work.roles.rollout->Run(stop));
  });
  work.trainer_thread = std::jthread([this, &work] {
    UseOneTorchThread();
    work.Fail(work.roles.trainer->Run(work.stop_trainer.get_token()));
    {
      MutexLock lock(work.mu);
      work.trainer_done = true;
    }
    WakeController();
  });
}

void LocalRun::StopThreads(Work& work) {
  work.stop_trainer.request_stop();
  work.roles.store->Close();
  if (work.roles.evaluations != nullptr) work.roles.evaluations->Close();
  if (work.trainer_thread.joinable()) work.trainer_thread.join();
  work.stop_workers.request_stop();
  work.roles.store->Close();
  work.threads.clear();
}

// The controller's loop, until the trainer is done or a role has failed.
absl::Status LocalRun::Control(Work& work) {
  RunEvaluations* const evaluations = work.roles.evaluations.get();
  while (true) {
    FRESHET_RETURN_IF_ERROR(work.roles.store->Sweep().status());
    FRESHET_RETURN_IF_ERROR(CheckCalls(setup_.spec, *options_.calls));
    FRESHET_RETURN_IF_ERROR(WatchDeaths(work));
    FRESHET_RETURN_IF_ERROR(WatchTeam(work));
    if (evaluations != nullptr) FRESHET_RETURN_IF_ERROR(evaluations->Record());
    FRESHET_RETURN_IF_ERROR(work.Failure());
    {
      MutexLock lock(work.mu);
      if (work.trainer_done) return absl::OkStatus();
    }
    if (StopRequested()) {
      work.stop_trainer.request_stop();
      if (evaluations != nullptr) evaluations->GiveUpAwaited();
    }
    MutexLock lock(mu_);
    const bool awaited = evaluations != nullptr && evaluations->awaited();
    if (!turn_due_) wake_.WaitFor(mu_, awaited ? kAwaitedEvaluationPeriod : kControlPeriod);
    turn_due_ = false;
  }
}

// Logs the groups that have died since the last call, and fails if nothing else happens.
absl::Status LocalRun::WatchDeaths(Work& work) {
  FRESHET_ASSIGN_OR_RETURN(const StoreStats stats, work.roles.store->Stats());
  const int64_t dead = stats.transitions[static_cast<size_t>(GroupState::kDead)];
  if (dead > work.deaths_logged) {
    FRESHET_ASSIGN_OR_RETURN(work.dead, work.roles.store->DeadLetters(DeathWatch::kMostDeadInARow));
    const int64_t told = std::min(
        {dead - work.deaths_logged, kMostLoggedDeaths, static_cast<int64_t>(work.dead.size())});
    for (int64_t i = told - 1; i >= 0; --i) {
      const DeadLetter& letter = work.dead[static_cast<size_t>(i)];
      FRESHET_LOG(Warning) << "event=group_died prompt=" << letter.ordinal
                           << " attempt=" << letter.attempt
                           << " reason=" << LogQuoted(ReasonLine(letter));
    }
    work.deaths_logged = dead;
  }
  const std::string failure = work.deaths.Check(stats, work.dead);
  if (failure.empty()) return absl::OkStatus();
  return FailedPrecondition(failure, LastDeath(*work.roles.store));
}

// Stops the trainer if no more prompts can be played because a partner has ended.
absl::Status LocalRun::WatchTeam(Work& work) {
  if (!work.team_end.empty()) return absl::OkStatus();
  FRESHET_ASSIGN_OR_RETURN(work.team_end, work.team.Look(*work.roles.store));
  if (work.team_end.empty()) return absl::OkStatus();
  FRESHET_LOG(Warning) << "event=team_ended reason=" << LogQuoted(work.team_end);
  work.roles.recorder->EmitEvent("team_ended", {{"reason", work.team_end}});
  work.stop_trainer.request_stop();
  return absl::OkStatus();
}

absl::Status LocalRun::FinalEvaluation(Work& work) {
  if (work.roles.evaluations == nullptr) return absl::OkStatus();
  const WeightSnapshot weights = work.roles.publisher->staged();
  while (!StopRequested()) {
    FRESHET_RETURN_IF_ERROR(work.Failure());
    FRESHET_RETURN_IF_ERROR(CheckCalls(setup_.spec, *options_.calls));
    FRESHET_ASSIGN_OR_RETURN(const bool over, work.roles.evaluations->EvaluateLast(weights));
    if (over) return absl::OkStatus();
    MutexLock lock(mu_);
    wake_.WaitFor(mu_, kAwaitedEvaluationPeriod);
  }
  return absl::OkStatus();
}

}  // namespace freshet
