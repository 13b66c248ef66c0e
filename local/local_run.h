#ifndef FRESHET_LOCAL_LOCAL_RUN_H_
#define FRESHET_LOCAL_LOCAL_RUN_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/fault_point.h"
#include "base/mutex.h"
#include "datastore/memory/in_memory_call_budget.h"
#include "local/job_setup.h"
#include "local/local_status.h"
#include "local/resume_point.h"
#include "local/run_folder.h"
#include "local/run_recorder.h"
#include "runlog/display.h"

namespace freshet {

struct LocalRunOptions {
  ResumePoint resume;             // of the folder
  RowSink rows;                   // rows of --json; may be empty
  int metrics_port = 0;           // on the loopback address; 0: no metrics server
  LocalStatus* status = nullptr;  // updated for the status page; may be null; outlives the run
  // Runs with copies of the options share it: one limit holds for all runs of a command.
  std::shared_ptr<InMemoryCallBudget> calls = std::make_shared<InMemoryCallBudget>();
};

enum class RunOutcome {
  kFinished,
  kInterrupted,
  kAlreadyFinished,
  kStateLost,  // the learner's: run again from the folder's newest checkpoint
};

struct RunResult {
  RunOutcome outcome = RunOutcome::kFinished;
  int64_t committed = 0;  // last step
  std::string reason;     // of kStateLost
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
  struct Roles;
  bool StopRequested();
  void WakeController();
  absl::Status MakeStore(Roles& roles);
  absl::Status MakeLearner(Roles& roles);
  absl::Status MakeRoles(Roles& roles);
  absl::Status MakeTrainer(Roles& roles);
  void StartThreads(Roles& roles);
  void StopThreads(Roles& roles);
  absl::Status Control(Roles& roles);
  absl::Status WatchDeaths(Roles& roles);
  absl::Status FinalEvaluation(Roles& roles);

  const JobSetup& setup_;
  const RunFolder& folder_;
  Display& display_;
  const Clock& clock_;
  FaultPoints& faults_;
  const LocalRunOptions options_;
  const std::function<std::string(const std::vector<int32_t>&)> decode_;
  Mutex mu_;
  CondVar wake_;
  bool stop_requested_ ABSL_GUARDED_BY(mu_) = false;
  bool turn_due_ ABSL_GUARDED_BY(mu_) = false;  // the controller has something to do
};

}  // namespace freshet

#endif  // FRESHET_LOCAL_LOCAL_RUN_H_
