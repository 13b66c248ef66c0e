#include "bench/rollout/machine.h"

#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <vector>

#include "base/clock.h"
#include "bench/model/bench_model.h"
#include "model/device.h"
#include "model/parameter_layout.h"
#include "model/torch.h"
#include "rollout/engine/kernels/kernel_choice.h"
#include "rollout/engine/kernels/matrix.h"

namespace freshet {
namespace {

double BestSeconds(int rounds, const std::function<void()>& run) {
  double best = 1e9;
  for (int round = 0; round < rounds; ++round) {
    const absl::Time start = SystemClock::Get().Now();
    run();
    best = std::min(best, absl::ToDoubleSeconds(SystemClock::Get().Now() - start));
  }
  return best;
}

double KernelFlops(MatrixFormat format, ThreadPool& pool) {
  constexpr int64_t kSize = 512;
  constexpr int64_t kRows = 240;
  const std::vector<float> numbers(kSize * kSize, 0.5F);
  const PackedMatrix matrix(numbers.data(), kSize, kSize, format, pool);
  Activations x(format, kSize);
  x.Resize(kRows);
  for (int64_t i = 0; i < kRows; ++i) x.Store(i, numbers.data());
  std::vector<float> out(kRows * kSize);
  const CpuKernels kernels = KernelsOfThisCpu(format, /*deterministic=*/false).kernels;
  const double seconds = BestSeconds(200, [&] {
    Multiply(x, kRows, matrix, {out.data(), kSize}, kernels, pool);
  });
  return 2.0 * kRows * kSize * kSize / seconds;
}

double AtenFlops(at::ScalarType dtype) {
  constexpr int64_t kSize = 512;
  const c10::InferenceMode inference;
  const at::Tensor x = at::full({kSize, kSize}, 0.5, dtype);
  const double seconds = BestSeconds(20, [&] { at::linear(x, x); });
  return 2.0 * kSize * kSize * kSize / seconds;
}

double ReadBytesPerSecond(ThreadPool& pool) {
  constexpr int64_t kBytes = int64_t{1} << 30;
  constexpr int64_t kParts = 64;
  const AlignedBytes memory = AllocateAligned(kBytes);
  std::memset(memory.get(), 1, kBytes);
  std::vector<uint64_t> sums(kParts);
  const double seconds = BestSeconds(5, [&] {
    pool.For(kParts, [&](int64_t part, int) {
      const auto* words =
          reinterpret_cast<const uint64_t*>(memory.get() + part * (kBytes / kParts));
      uint64_t lanes[32] = {};
      for (int64_t i = 0; i < kBytes / kParts / 8; i += 32) {
        for (int64_t l = 0; l < 32; ++l) lanes[l] += words[i + l];
      }
      for (const uint64_t lane : lanes) sums[static_cast<size_t>(part)] += lane;
    });
  });
  return static_cast<double>(kBytes) / seconds;
}

// All matrices of a model except the embedding.
std::vector<ParameterBlock> Matrices(const ParameterLayout& layout) {
  std::vector<ParameterBlock> matrices;
  for (const ParameterLayout::Layer& layer : layout.layers) {
    const ParameterLayout::Mlp& mlp = layer.mlps.front();
    matrices.insert(matrices.end(), {layer.qkv, layer.o, mlp.gate_up, mlp.down});
  }
  matrices.push_back(layout.lm_head);
  return matrices;
}

double OurSeconds(const std::vector<ParameterBlock>& blocks, const float* weights, int64_t rows,
                  MatrixFormat format, ThreadPool& pool) {
  std::vector<PackedMatrix> matrices;
  int64_t widest = 0;
  for (const ParameterBlock& block : blocks) {
    matrices.emplace_back(weights + block.offset, block.shape[0], block.shape[1], format, pool);
    widest = std::max(widest, block.shape[0]);
  }
  std::vector<Activations> inputs;
  for (const PackedMatrix& matrix : matrices) {
    Activations& x = inputs.emplace_back(format, matrix.columns());
    x.Resize(rows);
    for (int64_t i = 0; i < rows; ++i) x.Store(i, weights + i);
  }
  std::vector<float> out(static_cast<size_t>(rows * widest));
  const CpuKernels kernels = KernelsOfThisCpu(format, /*deterministic=*/false).kernels;
  return BestSeconds(5, [&] {
    for (size_t m = 0; m < matrices.size(); ++m) {
      Multiply(inputs[m], rows, matrices[m], {out.data(), matrices[m].rows()}, kernels, pool);
    }
  });
}

double AtenSeconds(const std::vector<ParameterBlock>& blocks, const float* weights, int64_t rows,
                   at::ScalarType dtype) {
  const c10::InferenceMode inference;
  std::vector<std::pair<at::Tensor, at::Tensor>> operands;
  for (const ParameterBlock& block : blocks) {
    // from_blob requires a mutable pointer; nothing writes through it.
    const at::Tensor matrix = at::from_blob(const_cast<float*>(weights + block.offset),
                                            {block.shape[0], block.shape[1]}, at::kFloat);
    operands.emplace_back(at::full({rows, block.shape[1]}, 0.01, dtype), matrix.to(dtype));
  }
  return BestSeconds(3, [&] {
    for (const auto& [x, matrix] : operands) at::linear(x, matrix);
  });
}

}  // namespace

nlohmann::json MeasureCeilings(int threads) {
  at::set_num_threads(threads);
  ThreadPool pool(threads);
  const double fp32 = std::max(KernelFlops(MatrixFormat::kFloat32, pool), AtenFlops(at::kFloat));
  const double bf16 =
      std::max(KernelFlops(MatrixFormat::kBfloat16, pool), AtenFlops(at::kBFloat16));
  return {{"fp32_flops", fp32},
          {"bf16_flops", std::max(fp32, bf16)},  // bf16 numbers can be computed in fp32
          {"int8_flops", std::max({fp32, bf16, KernelFlops(MatrixFormat::kInt8, pool)})},
          {"bytes_per_second", ReadBytesPerSecond(pool)},
          {"kernels", CpuKernelsName(KernelsOfThisCpu(MatrixFormat::kBfloat16, false).kernels)}};
}

nlohmann::json MeasureDeviceCeilings(const std::string& name) {
  const at::NoGradGuard no_grad;
  const at::Device device = OpenDevice(name).value();
  const int64_t size = device.is_cpu() ? 512 : 8192;
  const at::TensorOptions options = at::TensorOptions(device).dtype(at::kBFloat16);
  const at::Tensor a = at::randn({size, size}, options);
  const at::Tensor b = at::randn({size, size}, options);
  at::Tensor product = at::empty({size, size}, options);
  const at::Tensor from = at::zeros({size * size * 16}, options);
  at::Tensor to = at::empty_like(from);
  // The best of several rounds of work that is started together.
  const auto seconds = [&](const std::function<void()>& work) {
    constexpr int kRounds = 6;
    constexpr int kTimes = 10;
    double best = 0;
    for (int round = 0; round < kRounds; ++round) {
      const absl::Time start = SystemClock::Get().Now();
      for (int i = 0; i < kTimes; ++i) work();
      if (!device.is_cpu()) {
        c10::impl::VirtualGuardImpl(device.type()).synchronizeDevice(device.index());
      }
      const double each = absl::ToDoubleSeconds(SystemClock::Get().Now() - start) / kTimes;
      best = round == 0 ? each : std::min(best, each);
    }
    return best;
  };
  const auto n = static_cast<double>(size);
  const double multiply = seconds([&] { at::mm_out(product, a, b); });
  const double copy = seconds([&] { to.copy_(from); });
  return {{"bf16_flops", 2 * n * n * n / multiply},
          {"bytes_per_second", 2 * static_cast<double>(from.nbytes()) / copy}};
}

nlohmann::json MeasureKernels() {
  const std::vector<int64_t> rows = {1, 8, 64, 512};
  nlohmann::json result = {{"rows", rows}};
  for (const MatrixFormat format :
       {MatrixFormat::kFloat32, MatrixFormat::kBfloat16, MatrixFormat::kInt8}) {
    std::vector<CpuKernels> sets = KernelSets(format, BestCpuKernels());
    if (sets.front() != CpuKernels::kPortable) sets.insert(sets.begin(), CpuKernels::kPortable);
    nlohmann::json& table = result[MatrixFormatName(format)];
    for (const auto& candidate : ExamineKernels(format, sets, rows, absl::Seconds(3))) {
      table["gflops"][CpuKernelsName(candidate.kernels)] = candidate.gflops;
    }
    table["chosen"] = CpuKernelsName(KernelsOfThisCpu(format, /*deterministic=*/false).kernels);
  }
  return result;
}

nlohmann::json MeasureProducts(const ModelConfig& config, int64_t rows, int threads) {
  at::set_num_threads(threads);
  ThreadPool pool(threads);
  const std::vector<ParameterBlock> blocks = Matrices(MakeParameterLayout(config));
  const WeightBytes bytes = BenchWeights(config, Dtype::kF32);
  const auto* weights = reinterpret_cast<const float*>(bytes->data());
  return {{"bf16", OurSeconds(blocks, weights, rows, MatrixFormat::kBfloat16, pool)},
          {"fp32", OurSeconds(blocks, weights, rows, MatrixFormat::kFloat32, pool)},
          {"ATen bf16", AtenSeconds(blocks, weights, rows, at::kBFloat16)},
          {"ATen fp32", AtenSeconds(blocks, weights, rows, at::kFloat)}};
}

}  // namespace freshet
