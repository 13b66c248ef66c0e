#ifndef FRESHET_CONTROLLER_CLUSTER_WORKER_LOGS_H_
#define FRESHET_CONTROLLER_CLUSTER_WORKER_LOGS_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "base/mutex.h"
#include "freshet/cluster/v1/worker_service.pb.h"
#include "freshet/job/v1/job_service.pb.h"

namespace freshet {

struct WorkerLogsOptions {
  size_t lines_per_worker = 2000;
  size_t max_workers = 512;      // beyond that, the ring that was silent longest is dropped
  size_t max_line_bytes = 4096;  // longer lines are truncated
};

// Selects lines; an empty field matches all.
struct LogFilter {
  std::string job;
  std::string role;
  std::string worker;
};

struct LogPage {
  std::vector<job::v1::LogEntry> entries;  // oldest first
  int64_t position = 0;  // of the newest line examined; pass it to continue after it
};

// Takes the oldest lines that this process has logged, with role and worker; empty if none are
// left.
using OwnLog = std::function<std::vector<job::v1::LogEntry>()>;

// The last log lines of workers and of the controller, in one bounded ring each. Kept only in the
// memory of the active controller. Thread-safe.
class WorkerLogs {
 public:
  explicit WorkerLogs(WorkerLogsOptions options = {}) : options_(options) {}

  // Adds the log lines of a status, and the number of lines that the worker lost before them. Lines
  // are attributed to the jobs of the worker's assignments.
  void Add(cluster::v1::Role role, const cluster::v1::WorkerStatus& status)
      ABSL_LOCKS_EXCLUDED(mu_);
  // Adds lines of the controller itself, with role and worker. Lines are attributed to the jobs
  // that they name as job=ID.
  void AddOwn(std::vector<job::v1::LogEntry> entries) ABSL_LOCKS_EXCLUDED(mu_);
  // Adds all lines from `own`. Call it often: lines are ordered by when they were added.
  void TakeOwn(const OwnLog& own) ABSL_LOCKS_EXCLUDED(own_mu_, mu_);

  // The newest `tail` matching lines (0: all that are kept).
  LogPage Tail(const LogFilter& filter, size_t tail) const ABSL_LOCKS_EXCLUDED(mu_);
  // Matching lines after `position`. Waits up to `wait` of real time for one, or until Close.
  LogPage Next(const LogFilter& filter, int64_t position, absl::Duration wait)
      ABSL_LOCKS_EXCLUDED(mu_);
  // Ends all current and future waits.
  void Close() ABSL_LOCKS_EXCLUDED(mu_);

 private:
  struct Line {
    int64_t number = 0;
    std::vector<std::string> jobs;
    job::v1::LogEntry entry;
  };
  void Append(std::vector<std::string> jobs, job::v1::LogEntry entry)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  LogPage Collect(const LogFilter& filter, int64_t position) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const WorkerLogsOptions options_;
  Mutex own_mu_ ABSL_ACQUIRED_BEFORE(mu_);  // held while lines are taken, to preserve their order
  mutable Mutex mu_;
  CondVar added_;
  std::map<std::string, std::deque<Line>> rings_ ABSL_GUARDED_BY(mu_);
  int64_t last_ ABSL_GUARDED_BY(mu_) = 0;
  bool closed_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace freshet

#endif  // FRESHET_CONTROLLER_CLUSTER_WORKER_LOGS_H_
