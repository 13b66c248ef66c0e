#ifndef FRESHET_JOB_JOB_YAML_H_
#define FRESHET_JOB_JOB_YAML_H_

#include <string>

#include "job/job_schema.h"

namespace freshet {

// The job as YAML: all set keys in proto order, map entries sorted by name. ParseJob reads back the
// same spec, doubles included. Deterministic. Thread-safe.
std::string WriteJobYaml(const JobSpec& spec);

}  // namespace freshet

#endif  // FRESHET_JOB_JOB_YAML_H_
