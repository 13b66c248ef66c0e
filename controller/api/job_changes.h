#ifndef FRESHET_CONTROLLER_API_JOB_CHANGES_H_
#define FRESHET_CONTROLLER_API_JOB_CHANGES_H_

#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "controller/jobs/driver/controller.h"
#include "freshet/job/v1/job_service.pb.h"

namespace freshet {

// What users request of stored jobs: Pause, Resume, Cancel and Delete of the job API, in the
// current term. Errors: those of the ports, NOT_FOUND for an unknown job, FAILED_PRECONDITION if
// its state does not allow the change. Thread-safe.
class JobChanges {
 public:
  // `controller` must outlive it.
  explicit JobChanges(const Controller& controller) : controller_(controller) {}

  absl::StatusOr<job::v1::Job> Pause(ControllerTerm& term,
                                     const job::v1::PauseRequest& request) const;
  // Resumes the job and, if it has ended, the others of its team that have.
  absl::StatusOr<job::v1::Job> Resume(ControllerTerm& term,
                                      const job::v1::ResumeRequest& request) const;
  absl::StatusOr<job::v1::Job> Cancel(ControllerTerm& term,
                                      const job::v1::CancelRequest& request) const;
  // Also OK for a job that was deleted in this term. UNAVAILABLE: workers are still stopping, or
  // the trainer with its files is not there.
  absl::StatusOr<job::v1::DeleteReply> Delete(ControllerTerm& term,
                                              const job::v1::DeleteRequest& request) const;

 private:
  absl::StatusOr<job::v1::Job> Change(
      ControllerTerm& term, const std::string& id,
      const std::function<absl::Status(JobRecord&, absl::Time)>& change) const;

  const Controller& controller_;
};

}  // namespace freshet

#endif  // FRESHET_CONTROLLER_API_JOB_CHANGES_H_
