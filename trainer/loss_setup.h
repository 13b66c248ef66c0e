#ifndef FRESHET_TRAINER_LOSS_SETUP_H_
#define FRESHET_TRAINER_LOSS_SETUP_H_

#include <variant>
#include <vector>

#include "freshet/job/v1/job_spec.pb.h"
#include "trainer/loss_spec.h"

namespace freshet {

// The loss that a job's keys expand to, or the faults in them: ResolveLoss on `loss`, group_size,
// prompts_per_step and staleness.max. Pure; thread-safe.
std::variant<LossSpec, std::vector<LossFault>> ResolveJobLoss(const job::v1::JobSpec& spec);

}  // namespace freshet

#endif  // FRESHET_TRAINER_LOSS_SETUP_H_
