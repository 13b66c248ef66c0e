#include "model/torch_threads.h"

#include "model/torch.h"

namespace freshet {

void UseOneTorchThread() { at::set_num_threads(1); }

}  // namespace freshet
