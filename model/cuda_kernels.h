#ifndef FRESHET_MODEL_CUDA_KERNELS_H_
#define FRESHET_MODEL_CUDA_KERNELS_H_

#include "model/cuda/interface.h"
#include "model/torch.h"

namespace freshet {

// The functions of libfreshet_cuda.so.
struct CudaKernels {
  // Null where the library is not beside the program, in its RPATH or on LD_LIBRARY_PATH, or has
  // another version; the reason is logged once. ATen then computes the same. Call it where a GPU is
  // in use. Thread-safe.
  static const CudaKernels* Get();
  // Throws c10::Error, naming `what`, if `error` is one.
  void Check(int error, const char* what) const;

  decltype(&freshet_cuda_version) version;
  decltype(&freshet_cuda_error) error_text;
  decltype(&freshet_swiglu) swiglu;
  decltype(&freshet_swiglu_gradient) swiglu_gradient;
  decltype(&freshet_rms_norm) rms_norm;
  decltype(&freshet_rms_norm_gradient) rms_norm_gradient;
  decltype(&freshet_rope) rope;
  decltype(&freshet_gather_sum) gather_sum;
  decltype(&freshet_decode_embed) decode_embed;
  decltype(&freshet_decode_rope) decode_rope;
  decltype(&freshet_decode_attention) decode_attention;
  decltype(&freshet_graph_begin) graph_begin;
  decltype(&freshet_graph_end) graph_end;
  decltype(&freshet_graph_launch) graph_launch;
  decltype(&freshet_graph_destroy) graph_destroy;
  decltype(&freshet_upload) upload;
};

// The cudaStream_t of this thread's current stream on `device`.
void* CurrentCudaStream(at::Device device);

}  // namespace freshet

#endif  // FRESHET_MODEL_CUDA_KERNELS_H_
