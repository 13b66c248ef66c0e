#ifndef FRESHET_TESTS_WEIGHTS_CUDA_FAKE_CUDART_H_
#define FRESHET_TESTS_WEIGHTS_CUDA_FAKE_CUDART_H_

#include <cstddef>

namespace freshet {

enum class FakeCudaFault {
  kNone,
  kHang,      // copies do not end
  kCopy,      // a copy fails while it runs
  kNoExport,  // IPC is refused
  kNoOpen,
  kNoGpu,  // the library finds no driver
};

inline constexpr size_t kFakeCudaCapacity = size_t{256} << 20;  // of GPU memory

}  // namespace freshet

// Of the library fake_cudart.
extern "C" {
void FakeCudaSetFault(freshet::FakeCudaFault kind);
// Allocations, streams and open handles that exist.
int FakeCudaLiveObjects();
// The error that the next cudaGetLastError of this thread returns.
int FakeCudaPendingError();
// The current device of this thread.
int FakeCudaDevice();
}

#endif  // FRESHET_TESTS_WEIGHTS_CUDA_FAKE_CUDART_H_
