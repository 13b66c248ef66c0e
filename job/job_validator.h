#ifndef FRESHET_JOB_JOB_VALIDATOR_H_
#define FRESHET_JOB_JOB_VALIDATOR_H_

#include <cstdint>
#include <vector>

#include "job/config_error.h"
#include "job/job_schema.h"

namespace freshet {

// Checks a resolved job: each key on its own (range, allowed values, required) and the rules
// between keys. Consistency of the `loss` keys is checked by CheckLoss. `places` supplies line
// numbers. Keys with `earlier` errors are skipped, so that each mistake is reported once. Pure:
// opens no files. Thread-safe.
std::vector<ConfigError> ValidateJob(const JobSpec& spec, const KeyPlaces& places = {},
                                     const std::vector<ConfigError>& earlier = {});

// Smallest safe datastore.capacity_groups: (eta + 1 + 2 * checkpoint.every_steps) * B, because the
// store keeps a trained row until the second-newest checkpoint contains it. With every_steps 0 the
// only checkpoint is the last step, so it is (eta + 1 + trainer.steps) * B.
int64_t LeastCapacityGroups(const JobSpec& spec);

// datastore.capacity_groups, or LeastCapacityGroups if it is 0.
int64_t CapacityGroups(const JobSpec& spec);

}  // namespace freshet

#endif  // FRESHET_JOB_JOB_VALIDATOR_H_
