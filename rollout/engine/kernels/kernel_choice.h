#ifndef FRESHET_ROLLOUT_ENGINE_KERNELS_KERNEL_CHOICE_H_
#define FRESHET_ROLLOUT_ENGINE_KERNELS_KERNEL_CHOICE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "rollout/engine/kernels/cpu_features.h"
#include "rollout/engine/kernels/matrix.h"

namespace freshet {

// What a check on this CPU found about kernels for one format.
struct KernelCandidate {
  CpuKernels kernels = CpuKernels::kPortable;
  bool correct = true;         // equal to the portable kernels, except for rounding
  std::vector<double> gflops;  // on one thread, for each number of rows; empty: not measured
};

struct KernelChoice {
  CpuKernels kernels = CpuKernels::kPortable;
  std::string reason;
};

// The smallest set of kernels whose products for `format` are those of `kernels`, bit for bit.
CpuKernels SameResults(MatrixFormat format, CpuKernels kernels);

// Chooses from `candidates`, which are measured with the same numbers of rows. The largest correct
// set is preferred. Of the sets with the same results, the fastest is chosen, by the geometric mean
// of its speeds. A set with other results must be 1.2 times as fast, so that noise does not change
// results. If `deterministic`, it is never chosen: results then depend on the CPU alone.
KernelChoice ChooseKernels(MatrixFormat format, const std::vector<KernelCandidate>& candidates,
                           bool deterministic);

// The sets with code for `format`, smallest first, up to `best`. The portable kernels, which are
// the reference, are left out if there are others.
std::vector<CpuKernels> KernelSets(MatrixFormat format, CpuKernels best);

// Checks `sets`, which this CPU must have, and measures products of `rows` rows, in turns for about
// `budget`, but at least once. Speeds are the best of all turns.
std::vector<KernelCandidate> ExamineKernels(MatrixFormat format,
                                            const std::vector<CpuKernels>& sets,
                                            const std::vector<int64_t>& rows,
                                            absl::Duration budget);

// The choice for this CPU; the reason has the measured speeds. Measures for about 25 ms if there is
// more than one set, and logs a warning for each set that computes wrongly. Does it once per
// process for each pair of arguments. Thread-safe.
const KernelChoice& KernelsOfThisCpu(MatrixFormat format, bool deterministic);

}  // namespace freshet

#endif  // FRESHET_ROLLOUT_ENGINE_KERNELS_KERNEL_CHOICE_H_
