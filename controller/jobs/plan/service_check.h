#ifndef FRESHET_CONTROLLER_JOBS_PLAN_SERVICE_CHECK_H_
#define FRESHET_CONTROLLER_JOBS_PLAN_SERVICE_CHECK_H_

#include <vector>

#include "job/config_error.h"
#include "job/job_schema.h"

namespace freshet {

// The errors of a resolved job that only those who will serve it can tell: options of a scorer that
// it refuses (a pattern that is no regular expression), and options of a built-in environment that
// it does not have or whose values it does not take. With their places. What a user serves himself
// (type grpc) is not asked. Pure; thread-safe.
std::vector<ConfigError> CheckServices(const JobSpec& spec, const KeyPlaces& places);

}  // namespace freshet

#endif  // FRESHET_CONTROLLER_JOBS_PLAN_SERVICE_CHECK_H_
