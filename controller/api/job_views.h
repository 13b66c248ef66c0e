#ifndef FRESHET_CONTROLLER_API_JOB_VIEWS_H_
#define FRESHET_CONTROLLER_API_JOB_VIEWS_H_

#include <cstddef>
#include <optional>
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

// A worker as the API shows it. Pure.
job::v1::Worker ToWorker(const Member& member);

// A pool as the API shows it. Pure.
job::v1::PoolScale ToPoolScale(const PoolStats& stats);

// The pool that a job works on, or waits for. Pure.
std::string PoolOf(const JobRecord& record);

// The job as Get shows it; `live` is null where no driver is at hand. Pure.
job::v1::Job ToDetailedJob(const JobRecord& record, const JobLive* live);

// One page of the jobs that match, newest first. The page's token names the last job of the page,
// so that a job that comes or goes in between neither repeats nor hides others. INVALID_ARGUMENT
// naming the field: page_size or page_token. Pure.
absl::StatusOr<job::v1::ListReply> ListJobs(const std::vector<JobRecord>& records,
                                            const job::v1::ListRequest& request);

// The first `limit` jobs: those at work, then those that are PENDING, then those that have ended;
// of each kind the newest first. Pure.
StatusJobs ListJobsByState(const std::vector<JobRecord>& records, size_t limit);

// A stored event as Watch sends it. DATA_LOSS when it cannot be read. Pure.
absl::StatusOr<job::v1::Event> ToEvent(const StoredEvent& stored);

constexpr size_t kMaxTailBytes = size_t{15} << 20;  // fits a gRPC message: 16 MiB by default
// The last `count` events of a stream, oldest first; only the newest of them where their values
// have more than kMaxTailBytes. Holds that much and a page. Errors: those of the log.
absl::StatusOr<std::vector<StoredEvent>> ReadTail(EventLog& events, const std::string& stream,
                                                  int64_t count);
// Gives `job` the states and notices that its record keeps, and behind them `tail`, the newest
// events of its stream, with their cursors; what is in both stands in the tail. Pure.
absl::Status SetRecentEvents(const JobRecord& record, const std::vector<StoredEvent>& tail,
                             job::v1::Job& job);

// The cursor of a WatchRequest; "" is 0. INVALID_ARGUMENT naming the field. Pure.
absl::StatusOr<int64_t> ParseCursor(const std::string& cursor);

}  // namespace freshet

#endif  // FRESHET_CONTROLLER_API_JOB_VIEWS_H_
