#ifndef FRESHET_MODEL_MODEL_WEIGHTS_H_
#define FRESHET_MODEL_MODEL_WEIGHTS_H_

#include "absl/status/status.h"
#include "model/model_files.h"
#include "model/parameter_layout.h"
#include "model/torch.h"

namespace freshet {

// Copies every tensor of a Hugging Face directory into its place in `flat` (fp32,
// layout.num_elements), converting bf16 and fp16. `files` must have passed its tensor check.
absl::Status FillArena(const ModelFiles& files, const ParameterLayout& layout,
                       const at::Tensor& flat);

}  // namespace freshet

#endif  // FRESHET_MODEL_MODEL_WEIGHTS_H_
