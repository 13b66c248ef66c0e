#ifndef FRESHET_MODEL_MODEL_WEIGHTS_H_
#define FRESHET_MODEL_MODEL_WEIGHTS_H_

#include "absl/status/status.h"
#include "model/model_files.h"
#include "model/parameter_layout.h"
#include "model/torch.h"

namespace freshet {

// Copies all tensors of a Hugging Face directory to their place in `flat` (fp32,
// layout.num_elements), converting bf16 and fp16. `files` must have passed CheckTensors.
absl::Status FillArena(const ModelFiles& files, const ParameterLayout& layout,
                       const at::Tensor& flat);

}  // namespace freshet

#endif  // FRESHET_MODEL_MODEL_WEIGHTS_H_
