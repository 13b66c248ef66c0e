#ifndef FRESHET_MODEL_MODEL_WEIGHTS_H_
#define FRESHET_MODEL_MODEL_WEIGHTS_H_

#include "absl/status/status.h"
#include "model/model_files.h"
#include "model/parameter_layout.h"
#include "model/torch.h"

namespace freshet {

// Copies all tensors of a Hugging Face directory to their place in `flat` (layout.num_elements;
// fp32 or bf16), converting from fp32, bf16 and fp16. `files` must have passed CheckTensors.
absl::Status FillArena(const ModelFiles& files, const ParameterLayout& layout,
                       const at::Tensor& flat);

}  // namespace freshet

#endif  // FRESHET_MODEL_MODEL_WEIGHTS_H_
