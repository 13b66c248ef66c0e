#ifndef FRESHET_CONTROLLER_JOBS_RECORD_JOB_RECORD_H_
#define FRESHET_CONTROLLER_JOBS_RECORD_JOB_RECORD_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "freshet/cluster/v1/controller_record.pb.h"
#include "freshet/job/v1/job_service.pb.h"
#include "job/job_state.h"

namespace freshet {

using cluster::v1::Assignment;
using cluster::v1::JobRecord;

// Lifecycle of a job:
//   PENDING -> STARTING -> RUNNING -> SUCCEEDED
//   STARTING, RUNNING -> PENDING (its workers were taken away), PAUSED, FAILED, CANCELLED
//   PENDING -> PAUSED, FAILED, CANCELLED
//   PAUSED -> PENDING, STARTING, RUNNING, FAILED, CANCELLED, SUCCEEDED
//   FAILED, CANCELLED -> PENDING (resumed)
// All functions in this file are pure: they change the given record, and time is an argument.

// STARTING or RUNNING, or PAUSED with workers assigned: a driver runs it.
bool IsActive(const JobRecord& record);

// The job's episodes run on the cluster's environment workers.
bool NeedsEnvWorkers(const job::v1::JobSpec& spec);

// What generates the job's samples, and what a rollout generates with: "native" if not given.
std::string EngineOf(const job::v1::JobSpec& spec);
std::string EngineOf(const cluster::v1::WorkerRecord& rollout);

// Number of latest events kept in a record, for Get.
constexpr int kRecentEvents = 16;

// A record in state PENDING, with its first event.
JobRecord NewJobRecord(const std::string& id, const job::v1::JobSpec& spec, int32_t priority,
                       absl::Time now);

// Moves the record and adds an event. If the state is the same, only the reason changes, without an
// event. FAILED_PRECONDITION for a transition that the lifecycle does not allow.
absl::Status MoveTo(JobRecord& record, job::v1::JobState state, const std::string& reason,
                    absl::Time now);

enum class Severity { kInfo, kWarning, kError };
void AddNotice(JobRecord& record, Severity severity, const std::string& kind,
               const std::string& text, absl::Time now);
// Keeps a notice of the job's stream, with its cursor, if a worker wrote it. Idempotent.
void KeepWorkersNotice(JobRecord& record, const cluster::v1::KeyedEvent& notice);

// User requests. Idempotent. FAILED_PRECONDITION, with the reason, if the job has ended in another
// way.
absl::Status WantPaused(JobRecord& record, const std::string& reason, absl::Time now);
absl::Status WantResumed(JobRecord& record, absl::Time now);
// Before WantResumed of a job that has ended: raises max_calls of the reward components named in
// `max_calls`. Idempotent. FAILED_PRECONDITION: a value changes and the job has not ended.
// INVALID_ARGUMENT: a component has no max_calls, or a higher one, or a value exceeds the key's
// maximum.
absl::Status RaiseMaxCalls(JobRecord& record,
                           const google::protobuf::Map<std::string, int64_t>& max_calls);
absl::Status WantCancelled(JobRecord& record, const std::string& reason, absl::Time now);
// Releases an active job's workers because another job holds them: it becomes PENDING, or PAUSED or
// CANCELLED if the user requested that.
absl::Status GiveWorkersUp(JobRecord& record, const std::string& reason, absl::Time now);
// Call before removing anything of the job: it can no longer be resumed. FAILED_PRECONDITION unless
// the job has ended.
absl::Status WantDeleted(JobRecord& record);

// Adds an assignment to the record; its id is JOB/ROLE/NUMBER. `role` is a role's short name.
Assignment NewAssignment(JobRecord& record, cluster::v1::Role role, const std::string& worker,
                         int64_t epoch, const std::string& incarnation, absl::Time now);
// JOB of an assignment id; "" if malformed.
std::string JobOfAssignment(const std::string& assignment_id);

// INVALID_ARGUMENT unless `id` has 1 to 63 letters, digits, '.', '_' and '-', starts with a letter
// or digit, and is not kClusterTag.
absl::Status ValidateJobId(const std::string& id);

// Largest version for which the evaluation set `name` is done, -1 if none.
int64_t EvaluatedVersion(const JobRecord& record, const std::string& name);
void SetEvaluatedVersion(JobRecord& record, const std::string& name, int64_t version);

// The job as the API returns it. `details`: with the recent events.
job::v1::Job ToJob(const JobRecord& record, bool details);

}  // namespace freshet

#endif  // FRESHET_CONTROLLER_JOBS_RECORD_JOB_RECORD_H_
