#ifndef FRESHET_TRAINER_LEARNER_MEMORY_USES_H_
#define FRESHET_TRAINER_LEARNER_MEMORY_USES_H_

#include <cstdint>
#include <string_view>

#include "model/memory_use.h"
#include "trainer/learner/policy_learner.h"

namespace freshet {

// What a learner on `device` allocates, as learner_memory.h plans it. Pure.

// Item `item` of PlanLearner for a learner that divides nothing; it must be one of the plan.
MemoryUse UseOf(std::string_view item, const PolicyLearnerOptions& options, at::Device device);
MemoryUse ActivationsOf(int64_t tokens, const PolicyLearnerOptions& options, at::Device device);
MemoryUse ReferenceOf(const PolicyLearnerOptions& options, at::Device device);
// Of `elements` parameters.
MemoryUse OptimizerStateOf(int64_t elements, at::Device device);

}  // namespace freshet

#endif  // FRESHET_TRAINER_LEARNER_MEMORY_USES_H_
