#ifndef FRESHET_CONTROLLER_JOBS_LOSS_CHECK_H_
#define FRESHET_CONTROLLER_JOBS_LOSS_CHECK_H_

#include <vector>

#include "controller/job/fault.h"
#include "controller/job/job_schema.h"
#include "trainer/loss_spec.h"

namespace freshet {

// Expands the loss of a job into `loss`, or returns the faults in its keys, with their places. The
// expansion is the trainer's own: a loss is data, and a contradiction is refused before anything
// starts. Pure; thread-safe.
std::vector<Fault> CheckLoss(const JobSpec& spec, const KeyPlaces& places, LossSpec& loss);

}  // namespace freshet

#endif  // FRESHET_CONTROLLER_JOBS_LOSS_CHECK_H_
