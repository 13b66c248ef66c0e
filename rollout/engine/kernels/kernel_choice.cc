#include "rollout/engine/kernels/kernel_choice.h"

#include <algorithm>
#include <cmath>
#include <mutex>

#include "absl/strings/str_format.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/random.h"
#include "base/str_cat.h"

namespace freshet {
namespace {

constexpr double kOtherResultsGain = 1.2;

// Of the weights that are measured: 512 KiB in bf16, so that they stay in the L2 cache.
constexpr int64_t kMeasuredOutputs = 256;
constexpr int64_t kMeasuredColumns = 1024;

std::vector<float> NumbersBelowOne(int64_t count, uint64_t seed) {
  std::vector<float> numbers(static_cast<size_t>(count));
  for (size_t i = 0; i < numbers.size(); ++i) {
    numbers[i] = static_cast<float>(2 * ToUniform(RandomBits(seed, i)) - 1);
  }
  return numbers;
}

// One product with random operands.
class TrialProduct {
 public:
  TrialProduct(MatrixFormat format, int64_t rows, int64_t outputs, int64_t columns)
      : rows_(rows), outputs_(outputs), x_(format, columns), bias_(NumbersBelowOne(outputs, 1)) {
    const std::vector<float> weights = NumbersBelowOne(outputs * columns, 2);
    matrix_ = PackedMatrix(weights.data(), outputs, columns, format, pool_);
    const std::vector<float> numbers = NumbersBelowOne(rows * columns, 3);
    x_.Resize(rows);
    for (int64_t i = 0; i < rows; ++i) x_.Store(i, numbers.data() + i * columns);
    out_.resize(static_cast<size_t>(rows * outputs));
  }

  // Of the first `rows` rows.
  void Run(CpuKernels kernels, int64_t rows) {
    Multiply(x_, rows, matrix_, {out_.data(), outputs_, bias_.data()}, kernels, pool_);
  }
  std::vector<float> Result(CpuKernels kernels) {
    Run(kernels, rows_);
    return out_;
  }

 private:
  const int64_t rows_;
  const int64_t outputs_;
  ThreadPool pool_{1};
  Activations x_;
  PackedMatrix matrix_;
  const std::vector<float> bias_;
  std::vector<float> out_;
};

bool IsCorrect(MatrixFormat format, CpuKernels kernels) {
  struct Shape {
    int64_t rows, outputs, columns;
  };
  // Full and partial tiles, panels and blocks of columns.
  for (const auto& [rows, outputs, columns] :
       {Shape{1, 160, 130}, {2, 160, 130}, {3, 7, 1}, {16, 32, 33}, {29, 70, 130}, {77, 96, 192}}) {
    TrialProduct product(format, rows, outputs, columns);
    const std::vector<float> expected = product.Result(CpuKernels::kPortable);
    const std::vector<float> actual = product.Result(kernels);
    for (size_t i = 0; i < actual.size(); ++i) {
      // Sums are around 10, and rounding changes them by 1e-5 at most. NaN is not near.
      if (!(std::abs(actual[i] - expected[i]) < 1e-4F)) return false;
    }
  }
  return true;
}

double MeanSpeed(const KernelCandidate& candidate) {
  if (candidate.gflops.empty()) return 0;
  double logs = 0;
  for (const double speed : candidate.gflops) logs += std::log(speed);
  return std::exp(logs / static_cast<double>(candidate.gflops.size()));
}

std::string Ratio(const KernelCandidate& a, const KernelCandidate& b) {
  return absl::StrFormat("%.2f", MeanSpeed(a) / MeanSpeed(b));
}

void LogRefused(MatrixFormat format, const std::vector<KernelCandidate>& candidates) {
  for (const KernelCandidate& candidate : candidates) {
    if (candidate.correct) continue;
    FRESHET_LOG(Warning) << "event=kernels_refused format=" << MatrixFormatName(format)
                         << " kernels=" << CpuKernelsName(candidate.kernels)
                         << " reason=\"differ from the portable kernels by more than rounding\"";
  }
}

std::string Speeds(const std::vector<KernelCandidate>& candidates) {
  std::string speeds;
  for (const KernelCandidate& candidate : candidates) {
    if (candidate.gflops.empty()) continue;
    speeds += StrCat(speeds.empty() ? " (GFLOP/s: " : ", ", CpuKernelsName(candidate.kernels), " ",
                     absl::StrFormat("%.1f", MeanSpeed(candidate)));
  }
  return speeds.empty() ? speeds : speeds + ")";
}

}  // namespace

CpuKernels SameResults(MatrixFormat format, CpuKernels kernels) {
  switch (format) {
    case MatrixFormat::kFloat32:  // with FMA, or without
    case MatrixFormat::kInt8:     // the same, for the scales
      return std::min(kernels, CpuKernels::kAvx2);
    case MatrixFormat::kBfloat16:  // widened, with exact products; or summed in pairs or tiles
      return kernels >= CpuKernels::kAvx512Bf16 ? kernels : CpuKernels::kPortable;
  }
  return kernels;
}

KernelChoice ChooseKernels(MatrixFormat format, const std::vector<KernelCandidate>& candidates,
                           bool deterministic) {
  const KernelCandidate* largest = nullptr;
  for (const KernelCandidate& candidate : candidates) {
    if (!candidate.correct) continue;
    if (largest == nullptr || candidate.kernels > largest->kernels) largest = &candidate;
  }
  if (largest == nullptr) return {CpuKernels::kPortable, "no other kernels compute correctly"};
  const KernelCandidate* best = largest;
  bool others = false;   // with the same results as the largest
  bool skipped = false;  // with other results
  for (const KernelCandidate& candidate : candidates) {
    if (!candidate.correct || &candidate == largest) continue;
    const bool same =
        SameResults(format, candidate.kernels) == SameResults(format, largest->kernels);
    (same || !deterministic ? others : skipped) = true;
    if (!same && deterministic) continue;
    const double needed = MeanSpeed(*largest) * (same ? 1 : kOtherResultsGain);
    if (MeanSpeed(candidate) > std::max(needed, MeanSpeed(*best))) best = &candidate;
  }
  std::string reason;
  if (best != largest) {
    reason = StrCat(Ratio(*best, *largest), " times as fast as ", CpuKernelsName(largest->kernels));
  } else if (others) {
    reason = "largest instruction set, and none is faster";
    if (!deterministic) reason += " enough";
  } else {
    reason = "largest instruction set";
  }
  if (skipped) reason += "; a deterministic job does not choose between roundings by speed";
  return {best->kernels, std::move(reason)};
}

std::vector<CpuKernels> KernelSets(MatrixFormat format, CpuKernels best) {
  std::vector<CpuKernels> sets = {CpuKernels::kAvx2, CpuKernels::kAvx512};
  if (format == MatrixFormat::kBfloat16) sets.push_back(CpuKernels::kAvx512Bf16);
  if (format != MatrixFormat::kFloat32) sets.push_back(CpuKernels::kAmx);
  std::erase_if(sets, [best](CpuKernels set) { return set > best; });
  if (sets.empty()) sets.push_back(CpuKernels::kPortable);
  return sets;
}

std::vector<KernelCandidate> ExamineKernels(MatrixFormat format,
                                            const std::vector<CpuKernels>& sets,
                                            const std::vector<int64_t>& rows,
                                            absl::Duration budget) {
  std::vector<KernelCandidate> candidates;
  candidates.reserve(sets.size());
  for (const CpuKernels set : sets) candidates.push_back({set, IsCorrect(format, set), {}});
  if (rows.empty()) return candidates;
  TrialProduct product(format, *std::max_element(rows.begin(), rows.end()), kMeasuredOutputs,
                       kMeasuredColumns);
  for (KernelCandidate& candidate : candidates) {
    if (candidate.correct) candidate.gflops.assign(rows.size(), 0);
  }
  const absl::Time end = SystemClock::Get().Now() + budget;
  do {
    for (KernelCandidate& candidate : candidates) {
      if (!candidate.correct) continue;
      for (size_t i = 0; i < rows.size(); ++i) {
        const absl::Time start = SystemClock::Get().Now();
        product.Run(candidate.kernels, rows[i]);
        const double seconds =
            std::max(1e-9, absl::ToDoubleSeconds(SystemClock::Get().Now() - start));
        const auto flops = static_cast<double>(2 * rows[i] * kMeasuredOutputs * kMeasuredColumns);
        candidate.gflops[i] = std::max(candidate.gflops[i], flops / seconds / 1e9);
      }
    }
  } while (SystemClock::Get().Now() < end);
  return candidates;
}

const KernelChoice& KernelsOfThisCpu(MatrixFormat format, bool deterministic) {
  struct Entry {
    std::once_flag once;
    KernelChoice choice;
  };
  static Entry entries[3][2];
  Entry& entry = entries[static_cast<int>(format)][deterministic ? 1 : 0];
  std::call_once(entry.once, [&] {
    const std::vector<CpuKernels> sets = KernelSets(format, BestCpuKernels());
    // Decode of some and many sequences, and prefill. That of one sequence waits for memory.
    std::vector<int64_t> rows = {8, 64, 128};
    if (sets.size() == 1) rows.clear();
    const auto candidates = ExamineKernels(format, sets, rows, absl::Milliseconds(25));
    entry.choice = ChooseKernels(format, candidates, deterministic);
    entry.choice.reason += Speeds(candidates);
    LogRefused(format, candidates);
  });
  return entry.choice;
}

}  // namespace freshet
