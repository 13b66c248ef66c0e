#ifndef FRESHET_MODEL_TORCH_THREADS_H_
#define FRESHET_MODEL_TORCH_THREADS_H_

namespace freshet {

// Makes LibTorch operations of the calling thread run on that thread only. Call it at the start of
// every compute thread if several roles share a process, because the setting is per thread.
void UseOneTorchThread();

}  // namespace freshet

#endif  // FRESHET_MODEL_TORCH_THREADS_H_
