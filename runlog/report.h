#ifndef FRESHET_RUNLOG_REPORT_H_
#define FRESHET_RUNLOG_REPORT_H_

#include <string>

#include "absl/status/status.h"
#include "runlog/job_facts.h"
#include "runlog/metrics_log.h"
#include "runlog/samples_log.h"

namespace freshet {

// Writes report.html to the run folder: a self-contained page (no scripts, no external requests)
// with the run's curves, evaluations, samples and job, from job.yaml, metrics.jsonl and
// samples.jsonl. Omits what is absent, ignores a torn last line, and shows the surviving lineage
// after a resume.
// Returns:
//   NOT_FOUND: `run_dir` has neither job.yaml nor metrics.jsonl.
//   INVALID_ARGUMENT: a malformed row; the message has file and line.
//   RESOURCE_EXHAUSTED, FAILED_PRECONDITION: the page cannot be written.
absl::Status WriteReport(const std::string& run_dir);

// Input of the page. `surviving` is SurvivingMetrics() of the metrics.
struct ReportInput {
  JobFacts job;
  MetricsHistory surviving;
  SampleExcerpt samples;
};
std::string RenderReport(const ReportInput& input);

}  // namespace freshet

#endif  // FRESHET_RUNLOG_REPORT_H_
