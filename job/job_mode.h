#ifndef FRESHET_JOB_JOB_MODE_H_
#define FRESHET_JOB_JOB_MODE_H_

#include <vector>

#include "job/config_error.h"
#include "job/job_schema.h"

namespace freshet {

// Where a job runs: all roles in one process (freshet local), or as services.
enum class JobMode { kLocal, kCluster };

// What a resolved job asks for that its mode cannot do: a valid job may fit only one of them. Pure;
// thread-safe.
std::vector<ConfigError> CheckMode(const JobSpec& spec, const KeyPlaces& places, JobMode mode);

}  // namespace freshet

#endif  // FRESHET_JOB_JOB_MODE_H_
