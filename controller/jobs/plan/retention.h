#ifndef FRESHET_CONTROLLER_JOBS_PLAN_RETENTION_H_
#define FRESHET_CONTROLLER_JOBS_PLAN_RETENTION_H_

#include <cstddef>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "controller/jobs/record/job_record.h"

namespace freshet {

// A job that has ended keeps its record, events, samples and trajectory store (including the
// ledger), so that it can be inspected, verified and (unless it succeeded) resumed. All of that is
// deleted when it expires. Checkpoints stay on the trainer.
struct RetentionOptions {
  absl::Duration keep = absl::Hours(24);  // after the end
  size_t max_ended = 100;                 // beyond that, the jobs that ended first expire early
};

struct Expiry {
  std::string job;
  std::string reason;
};

// Jobs that expire now, in order of their end. Active jobs never expire, nor do jobs that have
// succeeded while another of their team is active. Pure.
std::vector<Expiry> FindExpired(const std::vector<JobRecord>& records, absl::Time now,
                                const RetentionOptions& options);

}  // namespace freshet

#endif  // FRESHET_CONTROLLER_JOBS_PLAN_RETENTION_H_
