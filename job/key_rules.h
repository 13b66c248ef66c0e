#ifndef FRESHET_JOB_KEY_RULES_H_
#define FRESHET_JOB_KEY_RULES_H_

#include <string_view>
#include <vector>

#include "job/config_error.h"
#include "job/job_schema.h"

namespace freshet {

// Whether one of `errors` concerns `path`, a part of it, or a block that it belongs to.
bool Concerns(const std::vector<ConfigError>& errors, std::string_view path);

// Checks every key on its own against its options in the proto: required, range, allowed values,
// applicability. Keys that `earlier` concerns are not looked at again.
std::vector<ConfigError> CheckKeys(const JobSpec& spec, const KeyPlaces& places,
                                   const std::vector<ConfigError>& earlier);

}  // namespace freshet

#endif  // FRESHET_JOB_KEY_RULES_H_
