#ifndef FRESHET_RUNLOG_REPORT_H_
#define FRESHET_RUNLOG_REPORT_H_

#include <string>

#include "absl/status/status.h"

namespace freshet {

// Writes report.html into the run folder: one self-contained page (no request to anywhere) with the
// run's curves, evaluations, samples and job, from job.yaml, metrics.jsonl and samples.jsonl. It
// holds their content as JSON, which its script shows (page/). What is absent is left out; a torn
// last line is ignored; after a resume the surviving lineage is shown.
// Returns:
//   NOT_FOUND: `run_dir` has neither job.yaml nor metrics.jsonl.
//   INVALID_ARGUMENT: a malformed row; the message has file and line.
//   RESOURCE_EXHAUSTED, FAILED_PRECONDITION: the page cannot be written.
absl::Status WriteReport(const std::string& run_dir);

}  // namespace freshet

#endif  // FRESHET_RUNLOG_REPORT_H_
