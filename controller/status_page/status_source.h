#ifndef FRESHET_CONTROLLER_STATUS_PAGE_STATUS_SOURCE_H_
#define FRESHET_CONTROLLER_STATUS_PAGE_STATUS_SOURCE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "freshet/job/v1/job_service.pb.h"

namespace freshet {

// The server of the page.
struct StatusIdentity {
  std::string role;     // "controller" or "local"
  std::string version;  // of the program
  bool leads = false;   // controllers only: whether it leads
  std::string leader;   // address of the leader; "" if unknown
};

// The first jobs of the list, without events.
struct StatusJobs {
  std::vector<job::v1::Job> jobs;
  bool more = false;  // the list has more jobs
};

// A page of a job's metrics rows.
struct StatusRows {
  std::vector<std::string> rows;  // as in metrics.jsonl, oldest first
  int64_t cursor = 0;             // of the last event examined; continue after it
  bool gap = false;               // rows after the requested cursor have been dropped
  bool more = false;              // newer rows exist
};

// Data source of the status page: the read-only part of the job API. Thread-safe.
//
// Errors: NOT_FOUND for an unknown job, UNAVAILABLE if no controller leads or the datastore does
// not answer.
class StatusSource {
 public:
  virtual ~StatusSource() = default;

  virtual StatusIdentity Identity() = 0;
  // Up to `limit` jobs: active, then waiting, then ended; newest first within each group.
  virtual absl::StatusOr<StatusJobs> List(int limit) = 0;
  // Includes events and, if known, what the job waits for.
  virtual absl::StatusOr<job::v1::Job> Get(const std::string& id) = 0;
  // Rows after the cursor `after`; 0 starts at the oldest kept. Examines up to `limit` events, not
  // all of which are rows. OUT_OF_RANGE: the job has no such cursor.
  virtual absl::StatusOr<StatusRows> Metrics(const std::string& id, int64_t after,
                                             int64_t limit) = 0;
  // The newest rows of samples.jsonl, newest first.
  virtual absl::StatusOr<std::vector<std::string>> Samples(const std::string& id, int limit) = 0;
  virtual absl::StatusOr<job::v1::Cluster> Cluster() = 0;
};

}  // namespace freshet

#endif  // FRESHET_CONTROLLER_STATUS_PAGE_STATUS_SOURCE_H_
