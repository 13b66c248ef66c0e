#ifndef FRESHET_CONTROLLER_JOBS_PLAN_SERVICE_CHECK_H_
#define FRESHET_CONTROLLER_JOBS_PLAN_SERVICE_CHECK_H_

#include <vector>

#include "job/config_error.h"
#include "job/job_schema.h"

namespace freshet {

// Errors of a resolved job that only its services can detect, with their places: scorer options
// that the scorer refuses (such as an invalid regular expression), and unknown or invalid options
// of a built-in environment. User-provided services (type grpc) are not checked. Pure; thread-safe.
std::vector<ConfigError> CheckServices(const JobSpec& spec, const KeyPlaces& places);

}  // namespace freshet

#endif  // FRESHET_CONTROLLER_JOBS_PLAN_SERVICE_CHECK_H_
