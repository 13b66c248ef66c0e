#ifndef FRESHET_JOB_JOB_PARSER_H_
#define FRESHET_JOB_JOB_PARSER_H_

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "job/config_error.h"
#include "job/job_schema.h"

namespace freshet {

struct JobResult {
  std::string policy;  // of a file with `policies`; else ""
  // Resolved: all defaults are filled in, except blocks whose absence has a meaning (tokenizer,
  // eval, warmup.sft), keys that do not apply (KeyOptions.when), and the keys of `loss`, which stay
  // as written. Valid only if `errors` is empty.
  JobSpec spec;
  std::vector<ConfigError> errors;  // all errors, sorted by SortConfigErrors
  KeyPlaces places;                 // to locate errors found later
};

// Parses, overrides, resolves and validates a job file. `file_name` is used only in errors;
// `overrides` are the `a.b=c` arguments of --set (of a file with several policies: policies.h).
// `policy`: which job of a file with `policies`; "" for a file without. Safe for untrusted bytes
// (limits: yaml_tree.h). A block without a value counts as absent. Thread-safe.
JobResult ParseJob(std::string_view yaml_text, const std::string& file_name,
                   const std::vector<std::string>& overrides = {}, const std::string& policy = "");

// All jobs of a file.
struct JobFile {
  std::vector<JobResult> jobs;      // one without `policies`; else one per policy, in file order
  std::vector<ConfigError> errors;  // of all jobs, each once, sorted by SortConfigErrors
};
// Like ParseJob, for all jobs of the file.
JobFile ParseJobFile(std::string_view yaml_text, const std::string& file_name,
                     const std::vector<std::string>& overrides = {});

// Reads a job file of at most 4 MiB and parses it. Also returns INVALID_ARGUMENT, one line per
// error, instead of results with errors.
absl::StatusOr<std::vector<JobResult>> ReadJobs(const std::string& path,
                                                const std::vector<std::string>& overrides);

// Fills in the defaults as described at JobResult.spec. Idempotent.
void ResolveJob(JobSpec& spec);

}  // namespace freshet

#endif  // FRESHET_JOB_JOB_PARSER_H_
