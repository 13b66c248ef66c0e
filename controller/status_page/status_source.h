#ifndef FRESHET_CONTROLLER_STATUS_PAGE_STATUS_SOURCE_H_
#define FRESHET_CONTROLLER_STATUS_PAGE_STATUS_SOURCE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "freshet/job/v1/job_service.pb.h"

namespace freshet {

// Who serves the page.
struct StatusIdentity {
  std::string role;     // "controller" or "local"
  std::string version;  // of the program
  bool leads = false;   // of a controller: whether it leads
  std::string leader;   // address of the one that does; "" where none is known
};

// The head of the list of jobs, without events.
struct StatusJobs {
  std::vector<job::v1::Job> jobs;
  bool more = false;  // there are others behind these
};

// A page of a job's rows of metrics.
struct StatusRows {
  std::vector<std::string> rows;  // as in metrics.jsonl, oldest first
  int64_t cursor = 0;             // of the last event that was looked at: go on after it
  bool gap = false;               // rows between the cursor asked for and the first one are gone
  bool more = false;              // there are newer ones already
};

// What the status page shows: the job API, as far as it only reads. Thread-safe.
//
// Errors: NOT_FOUND for a job that is not there, UNAVAILABLE while no controller leads or the
// datastore is away.
class StatusSource {
 public:
  virtual ~StatusSource() = default;

  virtual StatusIdentity Identity() = 0;
  // Up to `limit` jobs: those at work first, then those that wait, then those that have ended; of
  // each kind the newest first.
  virtual absl::StatusOr<StatusJobs> List(int limit) = 0;
  // With events, and what the job waits for where that is known.
  virtual absl::StatusOr<job::v1::Job> Get(const std::string& id) = 0;
  // Rows after the cursor `after`; 0: from the oldest one that is kept. Looks at up to `limit`
  // events, not all of which are rows. OUT_OF_RANGE: the cursor is none of this job's.
  virtual absl::StatusOr<StatusRows> Metrics(const std::string& id, int64_t after,
                                             int64_t limit) = 0;
  // The newest rows of samples.jsonl, newest first.
  virtual absl::StatusOr<std::vector<std::string>> Samples(const std::string& id, int limit) = 0;
  virtual absl::StatusOr<job::v1::Cluster> Cluster() = 0;
};

}  // namespace freshet

#endif  // FRESHET_CONTROLLER_STATUS_PAGE_STATUS_SOURCE_H_
