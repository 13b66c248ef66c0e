#ifndef FRESHET_SERVICES_LOCAL_WARMUP_H_
#define FRESHET_SERVICES_LOCAL_WARMUP_H_

#include <functional>

#include "absl/status/status.h"
#include "services/local/job_setup.h"
#include "trainer/policy_learner.h"

namespace freshet {

// Told after every warm-up step; returns false to stop early.
using WarmupProgress = std::function<bool(int64_t step, int64_t steps, double loss)>;

// Supervised warm-up (`warmup.sft`): trains on the dataset's answers, each ended by the end token,
// in an order drawn from the job's seed. CANCELLED when `progress` stopped it.
absl::Status RunSftWarmup(const JobSetup& setup, PolicyLearner& learner,
                          const WarmupProgress& progress);

}  // namespace freshet

#endif  // FRESHET_SERVICES_LOCAL_WARMUP_H_
