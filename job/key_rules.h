#ifndef FRESHET_JOB_KEY_RULES_H_
#define FRESHET_JOB_KEY_RULES_H_

#include <string_view>
#include <vector>

#include "job/config_error.h"
#include "job/job_schema.h"

namespace freshet {

// Whether any of `errors` is at `path`, below it, or at a block that contains it.
bool Concerns(const std::vector<ConfigError>& errors, std::string_view path);

// Checks each key against its options in the proto: required, range, allowed values, applicability.
// Skips keys with `earlier` errors.
std::vector<ConfigError> CheckKeys(const JobSpec& spec, const KeyPlaces& places,
                                   const std::vector<ConfigError>& earlier);

}  // namespace freshet

#endif  // FRESHET_JOB_KEY_RULES_H_
