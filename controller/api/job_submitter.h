#ifndef FRESHET_CONTROLLER_API_JOB_SUBMITTER_H_
#define FRESHET_CONTROLLER_API_JOB_SUBMITTER_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>

#include "absl/status/statusor.h"
#include "controller/jobs/driver/controller.h"
#include "freshet/job/v1/job_service.pb.h"

namespace freshet {

// Submit and Validate of the job API. Errors: those of the ports; for a job with faults
// INVALID_ARGUMENT with one violation each; BadField for a field of the request. Thread-safe.
class JobSubmitter {
 public:
  // `max_jobs`: of those that have not ended. `random`: for the ids of jobs that come without one.
  // `controller` must outlive it.
  JobSubmitter(const Controller& controller, size_t max_jobs, std::function<uint64_t()> random)
      : controller_(controller), max_jobs_(max_jobs), random_(std::move(random)) {}

  // Stores the job, or returns the one that has its id, spec and priority. `given_up`: see
  // JobRegistry::Create. ALREADY_EXISTS: the id is that of another job. RESOURCE_EXHAUSTED:
  // `max_jobs` have not ended. FAILED_PRECONDITION: CheckTeamPool.
  absl::StatusOr<job::v1::Job> Submit(ControllerTerm& term, const job::v1::SubmitRequest& request,
                                      const std::function<bool()>& given_up) const;
  absl::StatusOr<job::v1::ValidateReply> Validate(const job::v1::ValidateRequest& request) const;

 private:
  const Controller& controller_;
  const size_t max_jobs_;
  const std::function<uint64_t()> random_;
};

}  // namespace freshet

#endif  // FRESHET_CONTROLLER_API_JOB_SUBMITTER_H_
