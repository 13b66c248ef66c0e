#ifndef FRESHET_MODEL_TENSOR_DIGEST_H_
#define FRESHET_MODEL_TENSOR_DIGEST_H_

#include <cstdint>

#include "model/torch.h"

namespace freshet {

// The WordDigest of a contiguous tensor's bytes, computed on its device, on the current stream.
uint64_t DigestOf(const at::Tensor& tensor);

}  // namespace freshet

#endif  // FRESHET_MODEL_TENSOR_DIGEST_H_
