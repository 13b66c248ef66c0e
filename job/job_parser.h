#ifndef FRESHET_JOB_JOB_PARSER_H_
#define FRESHET_JOB_JOB_PARSER_H_

#include <string>
#include <string_view>
#include <vector>

#include "job/config_error.h"
#include "job/job_schema.h"

namespace freshet {

struct JobResult {
  // Resolved: every default is filled in, but for blocks whose absence has a meaning (tokenizer,
  // eval, warmup.sft), keys that do not apply (KeyOptions.when), and the keys of `loss`, which stay
  // as they are written. Use it only when `errors` is empty.
  JobSpec spec;
  std::vector<ConfigError> errors;  // all of them, in the order of SortConfigErrors
  KeyPlaces places;                 // for errors that are found later
};

// Reads, overrides, resolves and validates a job file. `file_name` is used in errors only;
// `overrides` are the `a.b=c` of --set. Safe on untrusted bytes (limits in yaml_tree.h): every
// input gives a job or errors. A block without a value counts as absent. Thread-safe.
JobResult ParseJob(std::string_view yaml_text, const std::string& file_name,
                   const std::vector<std::string>& overrides = {});

// Fills in the defaults of `spec` as described at JobResult.spec. Idempotent.
void ResolveJob(JobSpec& spec);

}  // namespace freshet

#endif  // FRESHET_JOB_JOB_PARSER_H_
