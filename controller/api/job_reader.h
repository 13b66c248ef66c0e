#ifndef FRESHET_CONTROLLER_API_JOB_READER_H_
#define FRESHET_CONTROLLER_API_JOB_READER_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "controller/jobs/driver/controller.h"
#include "controller/status_page/status_source.h"
#include "freshet/job/v1/job_service.pb.h"

namespace freshet {

// The reading half of the job API, for its callers over gRPC and for the status page. Any
// controller can read what is in the record store and the event log; what a job waits for, and the
// workers, only the one that leads knows. Errors: those of the ports, NOT_FOUND for a job that is
// not there, INVALID_ARGUMENT naming a field of the request. Thread-safe.
class JobReader {
 public:
  // `controller` must outlive it.
  explicit JobReader(const Controller& controller) : controller_(controller) {}

  absl::StatusOr<job::v1::ListReply> List(const job::v1::ListRequest& request) const;
  // What the status page lists: StatusSource::List.
  absl::StatusOr<StatusJobs> ListByState(int limit) const;
  // With its events; with what it waits for while this controller leads and a driver works on it.
  absl::StatusOr<job::v1::Job> Get(const std::string& id) const;
  absl::StatusOr<job::v1::ListSamplesReply> Samples(
      const job::v1::ListSamplesRequest& request) const;
  // Rows of metrics among the up to `max` events after the cursor `after`. OUT_OF_RANGE: `after` is
  // none of the job's.
  absl::StatusOr<StatusRows> Metrics(const std::string& id, int64_t after, int64_t max) const;
  // Workers, and the jobs that have not ended.
  absl::StatusOr<job::v1::Cluster> Cluster(ControllerTerm& term) const;

 private:
  const Controller& controller_;
};

}  // namespace freshet

#endif  // FRESHET_CONTROLLER_API_JOB_READER_H_
