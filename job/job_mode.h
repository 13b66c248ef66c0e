#ifndef FRESHET_JOB_JOB_MODE_H_
#define FRESHET_JOB_JOB_MODE_H_

#include <vector>

#include "job/config_error.h"
#include "job/job_schema.h"

namespace freshet {

// All roles in one process (freshet local), or one service per role.
enum class JobMode { kLocal, kCluster };

// Errors for settings of a resolved job that `mode` does not support. Pure; thread-safe.
std::vector<ConfigError> CheckMode(const JobSpec& spec, const KeyPlaces& places, JobMode mode);

}  // namespace freshet

#endif  // FRESHET_JOB_JOB_MODE_H_
