#ifndef FRESHET_ROLLOUT_ENGINE_CPU_RUNNER_H_
#define FRESHET_ROLLOUT_ENGINE_CPU_RUNNER_H_

#include <memory>

#include "base/thread_pool.h"
#include "model/model_config.h"
#include "model/rope.h"
#include "rollout/engine/kernels/cpu_features.h"
#include "rollout/engine/kernels/matrix.h"
#include "rollout/engine/kv_cache.h"
#include "rollout/engine/model_runner.h"

namespace freshet {

struct CpuRunnerOptions {
  MatrixFormat format = MatrixFormat::kFloat32;  // of matrices and of what they multiply
  CpuKernels kernels = CpuKernels::kPortable;    // of the products; attention has the CPU's largest
  int threads = 1;                               // including the caller
  KvFormat kv_format = KvFormat::kFloat32;
  int64_t cache_blocks = 1;
};

// Computes on the CPU with the kernels of kernels/. The residual stream, norms, biases, attention
// and routers are fp32. With bf16, all parameters are rounded to it, and the products of matrices
// too, as in the trainer. Each row of
// a batch gives the same bits in any batch, with any number of threads.
class CpuRunner final : public ModelRunner {
 public:
  // Throws std::bad_alloc.
  CpuRunner(const ModelConfig& config, const CpuRunnerOptions& options);
  ~CpuRunner() override;

  void LoadWeights(Lane lane, const WeightBytes& arena, Dtype dtype) override;
  const float* Run(Lane lane, const EngineBatch& batch) override;
  KvBlockPool& cache() override { return cache_; }
  ThreadPool& pool() override { return pool_; }

 private:
  struct Weights;
  struct Buffers;
  struct Mlp;
  struct Layer;

  void Embed(const Weights& weights, const EngineBatch& batch);
  void Attend(const Layer& layer, int64_t index, const EngineBatch& batch);
  // silu(gate) * up of the rows of `x`; valid until the next call.
  Activations& GatedActivations(const Mlp& mlp, const Activations& x, int64_t rows);
  void AddExperts(const Layer& layer, int64_t rows);
  // Normalizes the first `rows` rows of buffers_->x.
  void Normalize(const float* weight, int64_t rows, Activations& out);
  void MultiplyRows(const Activations& x, int64_t rows, const PackedMatrix& matrix,
                    ProductOutput out, Phase phase = Phase::kMatrices);

  const ModelConfig config_;
  const CpuRunnerOptions options_;
  ThreadPool pool_;
  const RopeTables rope_;
  KvCache cache_;
  std::shared_ptr<Weights> lanes_[kNumLanes];  // one object if they are the same
  std::unique_ptr<Buffers> buffers_;
};

}  // namespace freshet

#endif  // FRESHET_ROLLOUT_ENGINE_CPU_RUNNER_H_
