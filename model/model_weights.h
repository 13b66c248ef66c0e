#ifndef FRESHET_MODEL_MODEL_WEIGHTS_H_
#define FRESHET_MODEL_MODEL_WEIGHTS_H_

#include "absl/status/status.h"
#include "model/model_files.h"
#include "model/parameter_layout.h"
#include "model/torch.h"

namespace freshet {

// INVALID_ARGUMENT, naming file and tensor: `files` lack a tensor of `layout`, or it has another
// shape.
absl::Status CheckShapes(const ModelFiles& files, const ParameterLayout& layout);

// Copies tensors of a Hugging Face directory to their place in `flat`, fp32 or bf16, converting
// from fp32, bf16 and fp16. `flat` is the whole arena or its elements from `begin` on; where it
// ends, a tensor ends. `files` must have passed CheckTensors. Errors of CheckShapes, also of other
// tensors.
absl::Status FillArena(const ModelFiles& files, const ParameterLayout& layout,
                       const at::Tensor& flat, int64_t begin = 0);

}  // namespace freshet

#endif  // FRESHET_MODEL_MODEL_WEIGHTS_H_
