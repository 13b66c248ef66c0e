#ifndef FRESHET_CONTROLLER_API_JOB_CHANGES_H_
#define FRESHET_CONTROLLER_API_JOB_CHANGES_H_

#include "absl/status/statusor.h"
#include "controller/jobs/driver/controller.h"
#include "freshet/job/v1/job_service.pb.h"

namespace freshet {

// What users request of stored jobs: Pause, Resume, Cancel and Delete of the job API, in the
// current term. Errors of all functions: those of the ports, NOT_FOUND for an unknown job,
// FAILED_PRECONDITION if its state does not allow the change. Thread-safe.

absl::StatusOr<job::v1::Job> PauseJob(const Controller& controller, ControllerTerm& term,
                                      const job::v1::PauseRequest& request);
// Resumes the job and, if it has ended, the others of its team that have.
absl::StatusOr<job::v1::Job> ResumeJob(const Controller& controller, ControllerTerm& term,
                                       const job::v1::ResumeRequest& request);
absl::StatusOr<job::v1::Job> CancelJob(const Controller& controller, ControllerTerm& term,
                                       const job::v1::CancelRequest& request);
// Also OK for one of the last 1024 jobs that this leader has deleted. FAILED_PRECONDITION also for
// a job that has succeeded while another of its team has not ended. UNAVAILABLE: workers are still
// stopping, or the trainer with its files is not there.
absl::StatusOr<job::v1::DeleteReply> DeleteJob(const Controller& controller, ControllerTerm& term,
                                               const job::v1::DeleteRequest& request);

}  // namespace freshet

#endif  // FRESHET_CONTROLLER_API_JOB_CHANGES_H_
