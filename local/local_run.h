#ifndef FRESHET_LOCAL_LOCAL_RUN_H_
#define FRESHET_LOCAL_LOCAL_RUN_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/fault_point.h"
#include "base/mutex.h"
#include "local/job_setup.h"
#include "local/local_run_options.h"
#include "local/run_folder.h"
#include "runlog/display.h"

namespace freshet {

enum class RunOutcome {
  kFinished,
  kInterrupted,
  kAlreadyFinished,
  kEndedWithTeam,  // before its last step: FindTeamEnd
  kStateLost,      // the learner's: run again from the folder's newest checkpoint
};

struct RunResult {
  RunOutcome outcome = RunOutcome::kFinished;
  int64_t committed = 0;  // last step
  std::string reason;     // of kStateLost and kEndedWithTeam
};

// Runs all roles of a job as threads of this process: prompt feeder, one rollout engine, reward
// worker and trainer. Run() acts as the controller (evaluation, sweeping, deadlines).
class LocalRun {
 public:
  LocalRun(const JobSetup& setup, const RunFolder& folder, Display& display, const Clock& clock,
           FaultPoints& faults, LocalRunOptions options);
  ~LocalRun();

  // Trains to the last step. Blocks. Errors: those of the roles; FAILED_PRECONDITION with the
  // reason if the job cannot continue.
  absl::StatusOr<RunResult> Run();

  // Makes Run() drain, checkpoint and return. Thread-safe, callable at any time.
  void RequestStop();

 private:
  struct Work;
  bool StopRequested();
  void WakeController();
  void StartThreads(Work& work);
  void StopThreads(Work& work);
  absl::Status Control(Work& work);
  absl::Status WatchDeaths(Work& work);
  absl::Status WatchTeam(Work& work);
  absl::Status FinalEvaluation(Work& work);

  const JobSetup& setup_;
  const RunFolder& folder_;
  Display& display_;
  const Clock& clock_;
  FaultPoints& faults_;
  const LocalRunOptions options_;
  Mutex mu_;
  CondVar wake_;
  bool stop_requested_ ABSL_GUARDED_BY(mu_) = false;
  bool turn_due_ ABSL_GUARDED_BY(mu_) = false;  // the controller has something to do
};

}  // namespace freshet

#endif  // FRESHET_LOCAL_LOCAL_RUN_H_
