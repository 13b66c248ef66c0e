#ifndef FRESHET_CONTROLLER_JOB_KEY_RULES_H_
#define FRESHET_CONTROLLER_JOB_KEY_RULES_H_

#include <string_view>
#include <vector>

#include "controller/job/fault.h"
#include "controller/job/job_schema.h"

namespace freshet {

// Whether one of `faults` concerns `path`, a part of it, or a block that it belongs to.
bool Concerns(const std::vector<Fault>& faults, std::string_view path);

// Checks every key on its own against its options in the proto: required, range, allowed values,
// applicability. Keys that `earlier` concerns are not looked at again.
std::vector<Fault> CheckKeys(const JobSpec& spec, const KeyPlaces& places,
                             const std::vector<Fault>& earlier);

}  // namespace freshet

#endif  // FRESHET_CONTROLLER_JOB_KEY_RULES_H_
