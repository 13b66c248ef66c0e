#ifndef FRESHET_CONTROLLER_JOBS_RECORD_JOB_REGISTRY_H_
#define FRESHET_CONTROLLER_JOBS_RECORD_JOB_REGISTRY_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <set>
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

// Names of a job's event streams in the event log.
std::string EventStream(const std::string& job);
std::string SampleStream(const std::string& job);

// Stored jobs: typed records, and the events that belong to their changes. Any controller may read;
// only the leader writes. Records of jobs have the id "job/ID".
//
// An event is part of the record before it is appended to the log, under its own key. If a
// controller dies in between, the next change of the record, or Replay, appends it.
//
// Errors: those of the ports; DATA_LOSS for a record that cannot be parsed. FAILED_PRECONDITION of
// a write may mean that another controller leads now: IsDeposed detects it for Create and Change.
// Thread-safe.
class JobRegistry {
 public:
  // Called when Change has stored the end of a job; must be quick and thread-safe.
  using OnEnd = std::function<void(job::v1::JobState state)>;

  // `fence`: the leader's token, or -1 for a read-only controller. `on_end` may be empty.
  // `longest_creation`: how long Change waits for the creation of its job; longer than a command of
  // the datastore.
  JobRegistry(JobRecordStore& records, EventLog& events, int64_t fence, const Clock& clock,
              OnEnd on_end = nullptr, absl::Duration longest_creation = absl::Seconds(10))
      : records_(records),
        events_(events),
        fence_(fence),
        clock_(clock),
        on_end_(std::move(on_end)),
        longest_creation_(longest_creation) {}

  // NOT_FOUND "there is no job ID".
  absl::StatusOr<JobRecord> Get(const std::string& id) const;
  // Sorted by id.
  absl::StatusOr<std::vector<JobRecord>> List() const;

  // Sets the record's store generation, which is larger than that of every earlier job.
  // ALREADY_EXISTS: the id is taken. `given_up` is asked once, before the record is
  // written; true: DEADLINE_EXCEEDED and nothing is written. Change() of the same job
  // waits for a creation in progress. So a caller that gives up and then calls Change() either gets
  // the job, or NOT_FOUND and the job is never created.
  absl::Status Create(JobRecord record, const std::function<bool()>& given_up = nullptr)
      ABSL_LOCKS_EXCLUDED(mu_);
  // Applies `change` to the current record, stores the result and returns it. Retries on write
  // conflicts, so `change` may run several times. Writes nothing if `change` changes nothing or
  // fails; its error is returned. UNAVAILABLE: the job is still being created after
  // `longest_creation`.
  absl::StatusOr<JobRecord> Change(const std::string& id,
                                   const std::function<absl::Status(JobRecord&)>& change)
      ABSL_LOCKS_EXCLUDED(mu_);
  // FAILED_PRECONDITION: another controller leads now. For actions that the record store does not
  // fence: data read before an OK is from this term or an earlier one.
  absl::Status CheckLead() { return records_.Fence(fence_); }
  // Authorizes removal of the job's datastore data other than its record.
  JobRemoval Removal(const JobRecord& record) const {
    return {record.id(), record.store_generation(), fence_};
  }
  // Calls `remove_rest`, then deletes the record; does neither if the id belongs to a newer job.
  // Deletions are serialized, so that none hits a job whose id another deletion freed. Idempotent.
  absl::Status Delete(const JobRecord& record,
                      const std::function<absl::Status(const JobRemoval&)>& remove_rest)
      ABSL_LOCKS_EXCLUDED(deletion_mu_);
  // Whether the id is one of the last 1024 that this registry has deleted, or has tried to. So that
  // a repeated deletion whose first reply was lost is not refused.
  bool HasDeleted(const std::string& id) const ABSL_LOCKS_EXCLUDED(mu_);

  // Appends the record's events of the last minute that may be missing in the log. A new leader
  // calls it for each job before acting.
  absl::Status Replay(const JobRecord& record);
  // Appends a row of metrics. Idempotent by `key`.
  absl::Status AppendMetrics(const std::string& id, const std::string& key,
                             const std::string& json);

  absl::Time Now() const { return clock_.Now(); }

 private:
  // Waits until no job of this id is being created.
  absl::Status AwaitCreation(const std::string& id) ABSL_LOCKS_EXCLUDED(mu_);
  absl::Status AppendEvents(const JobRecord& record);

  JobRecordStore& records_;
  EventLog& events_;
  const int64_t fence_;
  const Clock& clock_;
  const OnEnd on_end_;
  const absl::Duration longest_creation_;
  Mutex deletion_mu_;
  mutable Mutex mu_;
  CondVar created_;  // an id has left `creating_`
  // Ids from the call of `given_up` until the record is stored or refused.
  std::multiset<std::string> creating_ ABSL_GUARDED_BY(mu_);
  std::deque<std::string> deleted_ ABSL_GUARDED_BY(mu_);  // the newest ids
  int64_t made_ ABSL_GUARDED_BY(mu_) = 0;                 // records created
  // Largest number of a job's event known to be in the log; smaller ones are, too.
  std::map<std::string, int64_t> appended_ ABSL_GUARDED_BY(mu_);
};

}  // namespace freshet

#endif  // FRESHET_CONTROLLER_JOBS_RECORD_JOB_REGISTRY_H_
