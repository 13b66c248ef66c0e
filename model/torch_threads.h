#ifndef FRESHET_MODEL_TORCH_THREADS_H_
#define FRESHET_MODEL_TORCH_THREADS_H_

namespace freshet {

// Keeps LibTorch operations on the thread that calls them. Called at the start of every thread that
// computes, where several roles share a process: the setting belongs to the calling thread.
void UseOneTorchThread();

}  // namespace freshet

#endif  // FRESHET_MODEL_TORCH_THREADS_H_
