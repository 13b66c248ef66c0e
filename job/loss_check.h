#ifndef FRESHET_JOB_LOSS_CHECK_H_
#define FRESHET_JOB_LOSS_CHECK_H_

#include <vector>

#include "job/config_error.h"
#include "job/job_schema.h"
#include "job/loss_spec.h"

namespace freshet {

// Expands the loss of a job into `loss`, or returns the errors in its keys, with their places. The
// expansion is the trainer's own: a loss is data, and a contradiction is refused before anything
// starts. Pure; thread-safe.
std::vector<ConfigError> CheckLoss(const JobSpec& spec, const KeyPlaces& places, LossSpec& loss);

}  // namespace freshet

#endif  // FRESHET_JOB_LOSS_CHECK_H_
