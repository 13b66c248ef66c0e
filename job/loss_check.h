#ifndef FRESHET_JOB_LOSS_CHECK_H_
#define FRESHET_JOB_LOSS_CHECK_H_

#include <vector>

#include "job/config_error.h"
#include "job/job_schema.h"
#include "job/loss_spec.h"

namespace freshet {

// Expands the job's loss into `loss`, or returns located errors. Uses the trainer's own expansion,
// so contradictions are rejected before the job starts. Pure; thread-safe.
std::vector<ConfigError> CheckLoss(const JobSpec& spec, const KeyPlaces& places, LossSpec& loss);

}  // namespace freshet

#endif  // FRESHET_JOB_LOSS_CHECK_H_
