#ifndef FRESHET_JOB_JOB_YAML_H_
#define FRESHET_JOB_JOB_YAML_H_

#include <string>

#include "job/job_schema.h"

namespace freshet {

// The job as YAML: every key that is set, in the order of the proto, entries of maps by name.
// ParseJob reads the same spec back, doubles included. Deterministic. Thread-safe.
std::string WriteJobYaml(const JobSpec& spec);

}  // namespace freshet

#endif  // FRESHET_JOB_JOB_YAML_H_
