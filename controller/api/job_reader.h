#ifndef FRESHET_CONTROLLER_API_JOB_READER_H_
#define FRESHET_CONTROLLER_API_JOB_READER_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "controller/jobs/driver/controller.h"
#include "controller/status_page/status_source.h"
#include "freshet/job/v1/job_service.pb.h"

namespace freshet {

// The read methods of the job API, for gRPC and the status page. Any controller can read the record
// store and the event log; only the leader knows the workers and what a job waits for. Errors:
// those of the ports, NOT_FOUND for an unknown job, INVALID_ARGUMENT naming a field of the request.
// Thread-safe.
class JobReader {
 public:
  // `controller` must outlive it.
  explicit JobReader(const Controller& controller) : controller_(controller) {}

  absl::StatusOr<job::v1::ListReply> List(const job::v1::ListRequest& request) const;
  // Implements StatusSource::List.
  absl::StatusOr<StatusJobs> ListByState(int limit) const;
  // Includes events. Includes what the job waits for if this controller leads and a driver runs the
  // job.
  absl::StatusOr<job::v1::Job> Get(const std::string& id) const;
  absl::StatusOr<job::v1::ListSamplesReply> Samples(
      const job::v1::ListSamplesRequest& request) const;
  // Rows of metrics among up to `max` events after the cursor `after`. OUT_OF_RANGE if the job has
  // no such cursor.
  absl::StatusOr<StatusRows> Metrics(const std::string& id, int64_t after, int64_t max) const;
  // Workers and active jobs.
  absl::StatusOr<job::v1::Cluster> Cluster(ControllerTerm& term) const;

 private:
  const Controller& controller_;
};

}  // namespace freshet

#endif  // FRESHET_CONTROLLER_API_JOB_READER_H_
