#ifndef FRESHET_TRAINER_LEARNER_WEIGHT_DIGEST_H_
#define FRESHET_TRAINER_LEARNER_WEIGHT_DIGEST_H_

#include <cstdint>

#include "model/torch.h"

namespace freshet {

// A digest of the bits of a flat fp32 or bf16 tensor, by which ranks notice that their weights
// differ. Equal on all ranks only if they are all on the CPU or all on GPUs.
uint64_t DigestOfWeights(const at::Tensor& flat);

// The one of tensors on GPUs, which is computed there: sums of the elements' bits, each times an
// odd number that depends on its place. Needs 64 MiB.
uint64_t AtenDigest(const at::Tensor& flat);

}  // namespace freshet

#endif  // FRESHET_TRAINER_LEARNER_WEIGHT_DIGEST_H_
