#ifndef FRESHET_CONTROLLER_JOB_JOB_PARSER_H_
#define FRESHET_CONTROLLER_JOB_JOB_PARSER_H_

#include <string>
#include <string_view>
#include <vector>

#include "controller/job/fault.h"
#include "controller/job/job_schema.h"

namespace freshet {

struct JobResult {
  // Resolved: every default is filled in, but for blocks whose absence has a meaning (tokenizer,
  // eval, warmup.sft), keys that do not apply (KeyOptions.when), and the keys of `loss`, which stay
  // as they are written. Use it only when `faults` is empty.
  JobSpec spec;
  std::vector<Fault> faults;  // all of them, in the order of SortFaults
  KeyPlaces places;           // for faults that are found later
};

// Reads, overrides, resolves and validates a job file. `file_name` is used in faults only;
// `overrides` are the `a.b=c` of --set. Safe on untrusted bytes (limits in yaml_tree.h): every
// input gives a job or faults. A block without a value counts as absent. Thread-safe.
JobResult ParseJob(std::string_view yaml_text, const std::string& file_name,
                   const std::vector<std::string>& overrides = {});

// Fills in the defaults of `spec` as described at JobResult.spec. Idempotent.
void ResolveJob(JobSpec& spec);

}  // namespace freshet

#endif  // FRESHET_CONTROLLER_JOB_JOB_PARSER_H_
