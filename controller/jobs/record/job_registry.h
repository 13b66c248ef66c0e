#ifndef FRESHET_CONTROLLER_JOBS_RECORD_JOB_REGISTRY_H_
#define FRESHET_CONTROLLER_JOBS_RECORD_JOB_REGISTRY_H_

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "controller/jobs/record/job_record.h"
#include "datastore/event_log.h"
#include "datastore/job_records.h"

namespace freshet {

// Names of a job's streams in the event log.
std::string EventStream(const std::string& job);
std::string SampleStream(const std::string& job);

// Jobs as they are stored: typed records, and the events that go with their changes. Reads are open
// to every controller, writes to the leader. Records of jobs have the id "job/ID".
//
// An event is part of the record before it is in the log, and is appended under a key of its own:
// a controller that dies between the two leaves nothing undone, because the next change of the
// record, or Replay, appends what is missing.
//
// Errors: those of the ports; DATA_LOSS for a record that cannot be read. FAILED_PRECONDITION of a
// write may say that another controller leads now: IsDeposed tells it of Create and Change.
// Thread-safe.
class JobRegistry {
 public:
  // Hears of each end of a job that Change has written; must be quick and thread-safe.
  using OnEnd = std::function<void(job::v1::JobState state)>;

  // `fence`: the leader's token, or -1 for a controller that only reads. `on_end` may be empty.
  JobRegistry(JobRecordStore& records, EventLog& events, int64_t fence, const Clock& clock,
              OnEnd on_end = nullptr)
      : records_(records),
        events_(events),
        fence_(fence),
        clock_(clock),
        on_end_(std::move(on_end)) {}

  // NOT_FOUND "there is no job ID".
  absl::StatusOr<JobRecord> Get(const std::string& id) const;
  // Sorted by id.
  absl::StatusOr<std::vector<JobRecord>> List() const;

  // Sets the record's store generation, which is larger than that of every earlier job.
  // ALREADY_EXISTS: the id is taken.
  absl::Status Create(JobRecord record);
  // Applies `change` to the current record and stores the result; tries again when another writer
  // was faster, so `change` may run several times. Nothing is written when it changes nothing or
  // returns an error, which is then returned. Returns the record as it is stored.
  absl::StatusOr<JobRecord> Change(const std::string& id,
                                   const std::function<absl::Status(JobRecord&)>& change);
  // FAILED_PRECONDITION: another controller leads now. For acts that the record store does not
  // fence: what was read before an OK is of this term or of earlier ones.
  absl::Status CheckLead() { return records_.Fence(fence_); }
  // Authorization to remove what the datastore holds of the job besides its record.
  JobRemoval Removal(const JobRecord& record) const {
    return {record.id(), record.store_generation(), fence_};
  }
  // Calls `remove_rest`, then deletes the record; neither where the id belongs to a newer job.
  // Deletions run one after the other, so that none meets a job whose id another one freed.
  // Idempotent.
  absl::Status Delete(const JobRecord& record,
                      const std::function<absl::Status(const JobRemoval&)>& remove_rest)
      ABSL_LOCKS_EXCLUDED(deletion_mu_);

  // Appends the events of the record's last minute that may be missing in the log: what a new
  // leader does with each job before it acts.
  absl::Status Replay(const JobRecord& record);
  // Appends a row of metrics. Idempotent by `key`.
  absl::Status AppendMetrics(const std::string& id, const std::string& key,
                             const std::string& json);

  absl::Time Now() const { return clock_.Now(); }

 private:
  absl::Status AppendEvents(const JobRecord& record);

  JobRecordStore& records_;
  EventLog& events_;
  const int64_t fence_;
  const Clock& clock_;
  const OnEnd on_end_;
  Mutex deletion_mu_;
  Mutex mu_;
  int64_t made_ ABSL_GUARDED_BY(mu_) = 0;  // records created
  // Events of a job that are known to be in the log: those with a number up to this one.
  std::map<std::string, int64_t> appended_ ABSL_GUARDED_BY(mu_);
};

}  // namespace freshet

#endif  // FRESHET_CONTROLLER_JOBS_RECORD_JOB_REGISTRY_H_
