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

// Writes metrics.jsonl. Confined to one thread at a time.
class MetricsLog {
 public:
  // Opens for appending. Creates the file if absent, and removes a torn last line.
  static absl::StatusOr<MetricsLog> Open(const std::string& path);

  // RESOURCE_EXHAUSTED: disk full, nothing written. FAILED_PRECONDITION: other errors.
  absl::Status Append(const StepMetrics& metrics);
  absl::Status Append(const EvalMetrics& metrics);
  absl::Status Sync() { return appender_.Sync(); }

 private:
  explicit MetricsLog(LineAppender appender) : appender_(std::move(appender)) {}
  LineAppender appender_;
};

// Rows of a metrics.jsonl, in file order.
struct MetricsHistory {
  std::vector<StepMetrics> steps;
  std::vector<EvalMetrics> evals;
  bool torn = false;  // a torn last line was ignored
};

// NOT_FOUND: no such file. INVALID_ARGUMENT: a malformed row; the message has file and line.
absl::StatusOr<MetricsHistory> ReadMetrics(const std::string& path);

// Rows of the surviving history. A lineage's rows are superseded from the first step of any later
// lineage on. Of several rows for a step (or evaluation and version) the one with the highest
// lineage counts, then the last one. Steps are sorted ascending, evaluations by version.
MetricsHistory SurvivingMetrics(const MetricsHistory& history);

}  // namespace freshet

#endif  // FRESHET_RUNLOG_METRICS_LOG_H_
