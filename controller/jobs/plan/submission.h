#ifndef FRESHET_CONTROLLER_JOBS_PLAN_SUBMISSION_H_
#define FRESHET_CONTROLLER_JOBS_PLAN_SUBMISSION_H_

#include <string>
#include <vector>

#include "base/data_roots.h"
#include "freshet/job/v1/job_service.pb.h"
#include "job/config_error.h"

namespace freshet {

// What a client submits or validates.
struct Submission {
  std::string yaml;                        // set either this
  const job::v1::JobSpec* spec = nullptr;  // or this
  std::string file_name;                   // of `yaml`, for messages
  std::vector<std::string> overrides;      // "a.b=c"
  std::string policy;                      // which job of a file with `policies`; else ""
};

struct CheckedSubmission {
  job::v1::JobSpec spec;            // resolved; valid only if `errors` is empty
  std::vector<ConfigError> errors;  // in the order of SortConfigErrors
};

constexpr size_t kMaxOverrides = 1000;

// Parses, overrides, resolves and validates a job for a cluster: its keys, its loss, the options of
// its scorers and environment, and the files of its dataset, which are opened below `roots`. Safe
// on untrusted input. Thread-safe.
CheckedSubmission CheckSubmission(const Submission& submission, const DataRoots& roots);

}  // namespace freshet

#endif  // FRESHET_CONTROLLER_JOBS_PLAN_SUBMISSION_H_
