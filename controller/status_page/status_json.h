#ifndef FRESHET_CONTROLLER_STATUS_PAGE_STATUS_JSON_H_
#define FRESHET_CONTROLLER_STATUS_PAGE_STATUS_JSON_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "controller/status_page/status_source.h"

namespace freshet {

// Bodies of the status page's private HTTP API. Each is one JSON object with a fixed
// key order and valid UTF-8, whatever the jobs contain. Times are RFC 3339 in UTC with
// milliseconds, or null. Pure.

// GET /api/jobs: `server`, at most 100 `jobs` (active, pending, then ended) and whether there are
// `more`.
std::string JobsToJson(const StatusIdentity& identity, const StatusJobs& jobs, absl::Time now);
// GET /api/jobs/ID. `yaml`: the resolved job file.
std::string JobToJson(const job::v1::Job& job, const std::string& yaml);
// GET /api/jobs/ID/metrics?after=CURSOR&limit=1..1000 (500). Rows of metrics.jsonl; malformed rows
// are left out. 400 OUT_OF_RANGE: the job was recreated, restart at 0.
std::string MetricsToJson(const StatusRows& rows);
// GET /api/jobs/ID/samples?limit=1..100 (20): ToShortJson of each, newest first. Malformed rows are
// left out.
std::string SamplesToJson(const std::vector<std::string>& rows);
// GET /api/workers: workers, and the pools that they make up.
std::string WorkersToJson(const job::v1::Cluster& cluster);
// Any reply other than 200.
std::string ErrorToJson(const absl::Status& status);

}  // namespace freshet

#endif  // FRESHET_CONTROLLER_STATUS_PAGE_STATUS_JSON_H_
