#ifndef FRESHET_LOCAL_RUN_RECORDER_H_
#define FRESHET_LOCAL_RUN_RECORDER_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "local/job_setup.h"
#include "local/local_status.h"
#include "local/metrics_server.h"
#include "local/run_folder.h"
#include "runlog/display.h"
#include "runlog/ledger_log.h"
#include "runlog/metrics_log.h"
#include "runlog/samples_log.h"
#include "trainer/loop/trainer_loop.h"

namespace freshet {

// Receives a run's machine-readable rows in addition to the folder: stdout under --json. Called
// with one line without its newline.
using RowSink = std::function<void(const std::string&)>;

// Records a run: ledger, metrics and samples in its folder, the live display, and the rows of
// --json. Thread-safe.
class RunRecorder final : public TrainerObserver {
 public:
  struct Options {
    absl::Time start;                  // of this process's work; wall_seconds counts from here
    double wall_offset_seconds = 0;    // of the run's earlier processes
    int64_t first_ledger_seq = 0;      // rows up to this one are already in the file
    RowSink rows;                      // may be empty
    LocalStatus* status = nullptr;     // may be null
    MetricsServer* metrics = nullptr;  // may be null
    // Why leases are handed back, for OnStalled; "" if none is. May be empty.
    std::function<std::string()> rollout_waits;
    // Called on the trainer's thread before each step's row is written; its error stops the run.
    // May be empty.
    std::function<absl::Status()> before_step;
    // Called on the trainer's thread for every step; starts due evaluations.
    std::function<absl::Status(int64_t step, const WeightSnapshot&)> on_published;
  };
  static absl::StatusOr<std::unique_ptr<RunRecorder>> Create(const JobSetup& setup,
                                                             const RunFolder& folder,
                                                             TrajectoryStore& store,
                                                             Display& display, const Clock& clock,
                                                             Options options);

  absl::Status OnCommitted() override;
  absl::Status OnStep(const FinishedStep& report, const WeightSnapshot& weights) override;
  void OnStalled(const std::string& reason, absl::Duration waited) override;

  // Appends all ledger rows that are not in the file yet.
  absl::Status ExportLedger();
  absl::Status RecordEval(EvalMetrics metrics);
  // An evaluation failed; training continues.
  void OnEvaluationFailed(const std::string& reason);
  // For --json, {"event": NAME, ...}, and the status page.
  void EmitEvent(const std::string& name, const std::map<std::string, std::string>& fields);

  double WallSeconds() const;

 private:
  RunRecorder(const JobSetup& setup, TrajectoryStore& store, Display& display, const Clock& clock,
              Options options, LedgerLog ledger, MetricsLog metrics, SamplesLog samples);
  StepMetrics MakeMetrics(const FinishedStep& report) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void EmitRow(const std::string& json) const;

  const JobSetup& setup_;
  TrajectoryStore& store_;
  Display& display_;
  const Clock& clock_;
  const Options options_;

  Mutex mu_;
  LedgerLog ledger_ ABSL_GUARDED_BY(mu_);
  MetricsLog metrics_ ABSL_GUARDED_BY(mu_);
  SamplesLog samples_ ABSL_GUARDED_BY(mu_);
  int64_t exported_seq_ ABSL_GUARDED_BY(mu_) = 0;
  // The store at the last commit and at the one before. It is read before the new weights are
  // published, because work with those belongs to the next step.
  StoreStats stats_now_ ABSL_GUARDED_BY(mu_);
  StoreStats stats_before_ ABSL_GUARDED_BY(mu_);
  absl::Time last_step_ ABSL_GUARDED_BY(mu_);
};

}  // namespace freshet

#endif  // FRESHET_LOCAL_RUN_RECORDER_H_
