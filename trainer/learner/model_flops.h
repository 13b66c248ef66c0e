#ifndef FRESHET_TRAINER_LEARNER_MODEL_FLOPS_H_
#define FRESHET_TRAINER_LEARNER_MODEL_FLOPS_H_

#include <vector>

#include "model/model_config.h"
#include "model/packed_batch.h"

namespace freshet {

// Floating-point operations of training on these trees: a forward pass and a backward pass (twice
// the forward) of all matrix products, including attention over visible tokens. A shared prefix
// counts once. Excludes reference and proximal log-probs, padding, normalization and the optimizer.
// Pure.
double TrainingFlops(const ModelConfig& model, const std::vector<PackTree>& trees);

}  // namespace freshet

#endif  // FRESHET_TRAINER_LEARNER_MODEL_FLOPS_H_
