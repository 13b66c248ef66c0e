#ifndef FRESHET_RUNLOG_METRICS_LOG_H_
#define FRESHET_RUNLOG_METRICS_LOG_H_

#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/file.h"
#include "runlog/step_metrics.h"

namespace freshet {

// Writer of metrics.jsonl. Confined to one thread at a time.
class MetricsLog {
 public:
  // Opens for appending, creating the file when absent; a torn last line is cut off first.
  static absl::StatusOr<MetricsLog> Open(const std::string& path);

  // RESOURCE_EXHAUSTED when the disk is full (nothing is left of the row), else
  // FAILED_PRECONDITION.
  absl::Status Append(const StepMetrics& metrics);
  absl::Status Append(const EvalMetrics& metrics);
  absl::Status Sync() { return appender_.Sync(); }

 private:
  explicit MetricsLog(LineAppender appender) : appender_(std::move(appender)) {}
  LineAppender appender_;
};

// The rows of a metrics.jsonl, in file order.
struct MetricsHistory {
  std::vector<StepMetrics> steps;
  std::vector<EvalMetrics> evals;
  bool torn = false;  // a torn last line was ignored
};

// NOT_FOUND when there is no such file; INVALID_ARGUMENT naming file and line of a malformed row.
absl::StatusOr<MetricsHistory> ReadMetrics(const std::string& path);

// The rows of the history that survives: rows of a lineage are superseded from the first step of
// any later lineage on; of several rows about one step (or evaluation and version) the one of the
// highest lineage counts, the last of them if they share it. Steps come back ascending, evaluations
// by version.
MetricsHistory SurvivingMetrics(const MetricsHistory& history);

}  // namespace freshet

#endif  // FRESHET_RUNLOG_METRICS_LOG_H_
