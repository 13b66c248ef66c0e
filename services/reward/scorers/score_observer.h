#ifndef FRESHET_SERVICES_REWARD_SCORERS_SCORE_OBSERVER_H_
#define FRESHET_SERVICES_REWARD_SCORERS_SCORE_OBSERVER_H_

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "datastore/trajectory.h"

namespace freshet {

// Notified of every sample that is scored, for metrics. Called from several threads; must be quick.
// Implementations are thread-safe.
class ScoreObserver {
 public:
  virtual ~ScoreObserver() = default;
  virtual void OnBegin() = 0;
  // `status` is OK (with `outcome` kOk or kWrongFormat), the failure, or CANCELLED.
  virtual void OnEnd(const absl::Status& status, ScoreOutcome outcome, absl::Duration took) = 0;
  // The same for one component of the sample's reward, before OnEnd.
  virtual void OnComponent(const std::string& name, const absl::Status& status,
                           ScoreOutcome outcome, absl::Duration took) = 0;
};

// The observers of a process, one per job. Thread-safe.
class ScoreObservers {
 public:
  virtual ~ScoreObservers() = default;
  // `job` is an id, or kCalls for calls outside of a job.
  virtual std::shared_ptr<ScoreObserver> Of(const std::string& job) = 0;

  static constexpr char kCalls[] = "-";
};

}  // namespace freshet

#endif  // FRESHET_SERVICES_REWARD_SCORERS_SCORE_OBSERVER_H_
