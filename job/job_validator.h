#ifndef FRESHET_JOB_JOB_VALIDATOR_H_
#define FRESHET_JOB_JOB_VALIDATOR_H_

#include <cstdint>
#include <vector>

#include "job/config_error.h"
#include "job/job_schema.h"

namespace freshet {

// Everything wrong with a resolved job: each key on its own (range, allowed values, required) and
// the rules between keys. Whether the keys of `loss` fit together is decided where presets are
// expanded. `places` gives the errors their lines; keys that `earlier` errors concern are skipped,
// so that one mistake is told once. Pure: no file is opened. Thread-safe.
std::vector<ConfigError> ValidateJob(const JobSpec& spec, const KeyPlaces& places = {},
                                     const std::vector<ConfigError>& earlier = {});

// Least datastore.capacity_groups that is safe: (eta + 1 + 2 * checkpoint.every_steps) * B. The
// store keeps a trained row until the second-newest checkpoint holds it; with every_steps 0, when
// only the last step is a checkpoint, to the end: (eta + 1 + trainer.steps) * B.
int64_t LeastCapacityGroups(const JobSpec& spec);

// datastore.capacity_groups, or the least one where that is 0.
int64_t CapacityGroups(const JobSpec& spec);

}  // namespace freshet

#endif  // FRESHET_JOB_JOB_VALIDATOR_H_
