#ifndef FRESHET_CONTROLLER_JOBS_PLAN_CONTROLLER_TIMING_H_
#define FRESHET_CONTROLLER_JOBS_PLAN_CONTROLLER_TIMING_H_

#include "absl/time/time.h"

namespace freshet {

// All periods and deadlines of a controller; `Scaled` shortens them for tests.
struct ControllerTiming {
  absl::Duration heartbeat_interval = absl::Seconds(1);
  absl::Duration lost_after = absl::Seconds(2);
  absl::Duration rejoin_grace = absl::Seconds(5);
  absl::Duration leader_ttl = absl::Seconds(2);
  absl::Duration leader_renewal = absl::Milliseconds(500);
  absl::Duration tick = absl::Milliseconds(200);  // of the controller and of each job
  absl::Duration patience = absl::Seconds(8);     // a stall is reported within 10 s
  absl::Duration retry_first = absl::Seconds(1);  // initial restart backoff of failed work; doubles
  absl::Duration retry_most = absl::Seconds(30);
  // Worker failures that end a job; see WorkFailures.
  int trainer_failures = 8;
  int worker_failures = 8;
  absl::Duration failure_window = absl::Minutes(10);
  // When the job of a lost trainer may move to another one. Infinite if no other trainer has its
  // checkpoints.
  absl::Duration other_trainer_after = absl::Seconds(60);
  absl::Duration describe_deadline = absl::Seconds(60);    // of TrainerService.DescribeModel
  absl::Duration call_deadline = absl::Seconds(10);        // of short calls to workers
  absl::Duration evaluation_deadline = absl::Minutes(10);  // per try, and for scoring
  absl::Duration final_evaluation_deadline = absl::Minutes(30);
  absl::Duration last_checkpoint_deadline = absl::Seconds(60);  // of a cancelled job
  // How long a job of a team without progress waits after a partner has succeeded; see FindTeamEnd.
  absl::Duration team_patience = absl::Seconds(60);
  // Used instead if enough groups for a step are ready: longer than the 15 min after which a group
  // that nobody plays is handed back.
  absl::Duration team_ready_patience = absl::Minutes(20);
  absl::Duration retention_period = absl::Minutes(1);  // between two checks

  ControllerTiming Scaled(double factor) const {
    ControllerTiming t = *this;
    for (absl::Duration* d :
         {&t.heartbeat_interval, &t.lost_after, &t.rejoin_grace, &t.leader_ttl, &t.leader_renewal,
          &t.tick, &t.patience, &t.retry_first, &t.retry_most, &t.failure_window,
          &t.other_trainer_after, &t.describe_deadline, &t.call_deadline, &t.evaluation_deadline,
          &t.final_evaluation_deadline, &t.last_checkpoint_deadline, &t.team_patience,
          &t.team_ready_patience, &t.retention_period}) {
      *d *= factor;
    }
    return t;
  }
};

}  // namespace freshet

#endif  // FRESHET_CONTROLLER_JOBS_PLAN_CONTROLLER_TIMING_H_
