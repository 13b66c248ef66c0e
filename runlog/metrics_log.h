#ifndef FRESHET_RUNLOG_METRICS_LOG_H_
#define FRESHET_RUNLOG_METRICS_LOG_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "runlog/jsonl.h"
#include "runlog/step_metrics.h"

namespace freshet {

// Writes metrics.jsonl.
using MetricsLog = JsonlLog;

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
