#ifndef FRESHET_CONTROLLER_API_JOB_VIEWS_H_
#define FRESHET_CONTROLLER_API_JOB_VIEWS_H_

#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "controller/autoscale/autoscaler.h"
#include "controller/cluster/membership.h"
#include "controller/jobs/driver/job_driver.h"
#include "controller/jobs/record/job_record.h"
#include "controller/status_page/status_source.h"
#include "datastore/event_log.h"
#include "freshet/job/v1/job_service.pb.h"

namespace freshet {

// "lost", "draining", "ready" or "joining". Pure.
std::string WorkerState(const Member& member);
job::v1::Worker ToWorker(const Member& member);

job::v1::PoolScale ToPoolScale(const PoolStats& stats);

// The pool that a job uses or waits for. Pure.
std::string PoolOf(const JobRecord& record);

// The job as Get returns it. `live` is null if no driver runs the job here. Pure.
job::v1::Job ToDetailedJob(const JobRecord& record, const JobLive* live);

// One page of the matching jobs, newest first. The page token names the last job of the page, so
// that created or deleted jobs neither repeat nor hide others. INVALID_ARGUMENT naming the field:
// page_size or page_token. Pure.
absl::StatusOr<job::v1::ListReply> ListJobs(const std::vector<JobRecord>& records,
                                            const job::v1::ListRequest& request);

// The first `limit` jobs: active, then PENDING, then ended; newest first within each group. Pure.
StatusJobs ListJobsByState(const std::vector<JobRecord>& records, size_t limit);

// Converts a stored event for Watch. DATA_LOSS if it cannot be parsed. Pure.
absl::StatusOr<job::v1::Event> ToEvent(const StoredEvent& stored);

constexpr size_t kMaxTailBytes = size_t{15} << 20;  // below gRPC's default message limit of 16 MiB
// The last `count` events of a stream, oldest first. If their values exceed kMaxTailBytes, only the
// newest of them. Holds at most that and one page in memory. Errors: those of the log.
absl::StatusOr<std::vector<StoredEvent>> ReadTail(EventLog& events, const std::string& stream,
                                                  int64_t count);
// Sets the events of `job`: first the states and notices kept in its record, then `tail`, the
// newest events of its stream, with their cursors. Events in both appear in the tail only. Pure.
absl::Status SetRecentEvents(const JobRecord& record, const std::vector<StoredEvent>& tail,
                             job::v1::Job& job);

// Parses the cursor of a WatchRequest; "" is 0. INVALID_ARGUMENT naming the field. Pure.
absl::StatusOr<int64_t> ParseCursor(const std::string& cursor);

}  // namespace freshet

#endif  // FRESHET_CONTROLLER_API_JOB_VIEWS_H_
