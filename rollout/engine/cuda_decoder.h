#ifndef FRESHET_ROLLOUT_ENGINE_CUDA_DECODER_H_
#define FRESHET_ROLLOUT_ENGINE_CUDA_DECODER_H_

#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "model/cuda_kernels.h"
#include "model/model_config.h"
#include "model/transformer.h"
#include "rollout/engine/aten_kv_cache.h"
#include "rollout/engine/engine_batch.h"
#include "rollout/engine/inference_engine.h"

namespace freshet {

// Decoding steps on a GPU: batches of one token per sequence, with Freshet's CUDA kernels between
// the matrix products of cuBLAS. Batches are padded to a few sizes; for each, the operations of a
// step are recorded in a CUDA graph, which later steps launch. Not thread-safe; all calls with the
// same current stream, which is not the default one.
class CudaDecoder {
 public:
  // Null if the kernels are missing or cannot compute this model; AtenRunner then does.
  static std::unique_ptr<CudaDecoder> Create(const Transformer& model, bool bf16,
                                             int64_t max_sequences, AtenKvCache& cache);
  ~CudaDecoder();
  CudaDecoder(const CudaDecoder&) = delete;
  CudaDecoder& operator=(const CudaDecoder&) = delete;

  // Whether every sequence of the batch has one token, and there are no more than can be recorded.
  bool Accepts(const EngineBatch& batch) const;

  // Writes keys and values to the cache and returns the logits of all rows, fp32 [rows, V], valid
  // until the next call. `weights` must be at the same addresses in every call for a lane. Throws
  // c10::Error.
  at::Tensor Run(Lane lane, const TransformerWeights& weights, const EngineBatch& batch);

 private:
  CudaDecoder(const Transformer& model, bool bf16, int64_t max_rows, AtenKvCache& cache,
              const CudaKernels& kernels);

  void Upload(const EngineBatch& batch, int64_t rows, void* stream);
  void Enqueue(const TransformerWeights& weights, int64_t rows, void* stream);

  // Of a lane and a number of rows.
  struct Recording {
    bool warmed_up = false;  // libraries have allocated what they need
    bool failed = false;     // to record
    void* graph = nullptr;
  };

  // Leaves the recording without a graph, and marks it, if that fails.
  void Record(Recording& recording, const TransformerWeights& weights, int64_t rows, void* stream);

  const Transformer& model_;
  const bool bf16_;
  const int64_t max_rows_;
  AtenKvCache& cache_;
  const CudaKernels& kernels_;
  std::map<std::pair<int, int64_t>, Recording> recordings_;

  at::Tensor staged_;  // the inputs of interface.h, in pinned host memory
  at::Tensor inputs_;
  // Of max_rows_ rows, in the type of the matrices unless noted.
  at::Tensor x_;  // the residual stream, fp32
  at::Tensor normed_, qkv_, q_, mixed_, product_, gate_up_, inner_, logits_;
  at::Tensor wide_logits_;  // fp32
  at::Tensor scratch_;      // of the attention, fp32
};

}  // namespace freshet

#endif  // FRESHET_ROLLOUT_ENGINE_CUDA_DECODER_H_
