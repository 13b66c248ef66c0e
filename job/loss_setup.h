#ifndef FRESHET_JOB_LOSS_SETUP_H_
#define FRESHET_JOB_LOSS_SETUP_H_

#include <variant>
#include <vector>

#include "freshet/job/v1/job_spec.pb.h"
#include "job/loss_spec.h"

namespace freshet {

// Runs ResolveLoss on the job's `loss`, group_size, prompts_per_step and staleness.max. Pure;
// thread-safe.
std::variant<LossSpec, std::vector<LossError>> ResolveJobLoss(const job::v1::JobSpec& spec);

}  // namespace freshet

#endif  // FRESHET_JOB_LOSS_SETUP_H_
