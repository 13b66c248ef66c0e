#ifndef FRESHET_CONTROLLER_JOBS_RECORD_JOB_RECORD_H_
#define FRESHET_CONTROLLER_JOBS_RECORD_JOB_RECORD_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "freshet/cluster/v1/controller_record.pb.h"
#include "freshet/job/v1/job_service.pb.h"

namespace freshet {

using cluster::v1::Assignment;
using cluster::v1::JobRecord;

// The life of a job:
//   PENDING -> STARTING -> RUNNING -> SUCCEEDED
//   STARTING, RUNNING -> PENDING (its workers were taken away), PAUSED, FAILED, CANCELLED
//   PENDING -> PAUSED, FAILED, CANCELLED
//   PAUSED -> PENDING, STARTING, RUNNING, FAILED, CANCELLED, SUCCEEDED
//   FAILED, CANCELLED -> PENDING (resumed)
// All functions of this file are pure: they change the record given, and time is an argument.

// "PENDING"
const char* StateName(job::v1::JobState state);
// SUCCEEDED, FAILED or CANCELLED.
bool HasEnded(job::v1::JobState state);
// STARTING or RUNNING, or PAUSED with workers of its own: a driver works on it.
bool IsActive(const JobRecord& record);

// The job's episodes run on the cluster's environment workers.
bool NeedsEnvWorkers(const job::v1::JobSpec& spec);

// Events that a record keeps: the last ones, for Get.
constexpr int kRecentEvents = 16;

// A record in state PENDING, with its first event.
JobRecord NewJobRecord(const std::string& id, const job::v1::JobSpec& spec, int32_t priority,
                       absl::Time now);

// Moves the record and adds an event. In the same state only the reason changes, without an event.
// FAILED_PRECONDITION for a transition that the life of a job does not have.
absl::Status MoveTo(JobRecord& record, job::v1::JobState state, const std::string& reason,
                    absl::Time now);

enum class Severity { kInfo, kWarning, kError };
void AddNotice(JobRecord& record, Severity severity, const std::string& kind,
               const std::string& text, absl::Time now);

// What the user asks for. Each is idempotent. FAILED_PRECONDITION when the job has ended in another
// way, with the reason.
absl::Status WantPaused(JobRecord& record, const std::string& reason, absl::Time now);
absl::Status WantResumed(JobRecord& record, absl::Time now);
absl::Status WantCancelled(JobRecord& record, const std::string& reason, absl::Time now);
// Takes an active job's workers away, which another job holds: it becomes PENDING, or PAUSED or
// CANCELLED if the user asked for that.
absl::Status GiveWorkersUp(JobRecord& record, const std::string& reason, absl::Time now);
// Before anything of the job is removed: from then on nobody can resume it. FAILED_PRECONDITION
// unless the job has ended.
absl::Status WantDeleted(JobRecord& record);

// A new assignment of the record; its id is JOB/ROLE/NUMBER. `role` is a role's short name.
Assignment NewAssignment(JobRecord& record, cluster::v1::Role role, const std::string& worker,
                         int64_t epoch, const std::string& incarnation, absl::Time now);
// JOB of such an id, "" when it is none.
std::string JobOfAssignment(const std::string& assignment_id);

// "rollout"
const char* RoleName(cluster::v1::Role role);

// INVALID_ARGUMENT unless `id` is 1 to 63 letters, digits, '.', '_' and '-', the first of them a
// letter or a digit, or when it is kClusterTag.
absl::Status ValidateJobId(const std::string& id);
// NAME-xxxxxxxx, as long as ids may be.
std::string MakeJobId(const std::string& name, uint64_t random_bits);

// The job as the API shows it. `details`: with the recent events.
job::v1::Job ToJob(const JobRecord& record, bool details);

}  // namespace freshet

#endif  // FRESHET_CONTROLLER_JOBS_RECORD_JOB_RECORD_H_
