#ifndef FRESHET_TRAINER_LEARNER_MODEL_FLOPS_H_
#define FRESHET_TRAINER_LEARNER_MODEL_FLOPS_H_

#include <vector>

#include "model/model_config.h"
#include "model/packed_batch.h"

namespace freshet {

// Floating-point operations that training on these trees needs: one forward and one backward pass
// (twice a forward one) of all matrix products, attention to what a token may see included. A
// shared prefix counts once. Not counted: what is computed beside (reference and proximal
// log-probs, padding, normalization, the optimizer). Pure.
double TrainingFlops(const ModelConfig& model, const std::vector<PackTree>& trees);

}  // namespace freshet

#endif  // FRESHET_TRAINER_LEARNER_MODEL_FLOPS_H_
