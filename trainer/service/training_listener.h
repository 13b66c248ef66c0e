#ifndef FRESHET_TRAINER_SERVICE_TRAINING_LISTENER_H_
#define FRESHET_TRAINER_SERVICE_TRAINING_LISTENER_H_

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "freshet/job/v1/job_spec.pb.h"
#include "runlog/step_metrics.h"
#include "trainer/loop/trainer_loop.h"

namespace freshet {

// Receives events of a trainer's work, for metrics. Implementations are thread-safe.
class TrainingListener {
 public:
  virtual ~TrainingListener() = default;
  // `waiting` returns how long the trainer has been waiting for samples; called until OnEnd.
  virtual void OnBegin(const std::string& job, const job::v1::JobSpec& spec,
                       std::function<absl::Duration()> waiting) = 0;
  // A step trained for the first time.
  virtual void OnStep(const std::string& job, const StepMetrics& metrics,
                      const FinishedStep& report) = 0;
  // Rows for the job's event streams: waiting, the bound, and dropped.
  virtual void OnRows(const std::string& job, int64_t waiting, int64_t bound, int64_t dropped) = 0;
  virtual void OnRedo(const std::string& job, int64_t version) = 0;
  // A rank was lost with its part of the state, so the work ends.
  virtual void OnStateLost(const std::string& /*job*/) {}
  virtual void OnCheckpoint(const std::string& /*job*/, bool /*ok*/) {}
  // As CheckpointHook::OnEnd; on any thread.
  virtual void OnCheckpointHook(const std::string& /*job*/, const absl::Status& /*status*/) {}
  virtual void OnEnd(const std::string& job) = 0;
};

}  // namespace freshet

#endif  // FRESHET_TRAINER_SERVICE_TRAINING_LISTENER_H_
