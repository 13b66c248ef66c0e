#ifndef FRESHET_TRAINER_LOSS_IMPORTANCE_RATIO_H_
#define FRESHET_TRAINER_LOSS_IMPORTANCE_RATIO_H_

#include <algorithm>
#include <array>
#include <cstdint>

namespace freshet {

// Histogram bucket bounds (inclusive upper) of importance ratios.
inline constexpr std::array<double, 14> kImportanceRatioBounds = {
    0.1, 0.25, 0.5, 0.8, 0.9, 0.95, 0.99, 1.01, 1.05, 1.1, 1.25, 2, 4, 10};

// Importance ratios, current policy over behavior policy: number of loss-bearing tokens per bucket.
// The last bucket is above all bounds.
struct ImportanceRatios {
  std::array<int64_t, kImportanceRatioBounds.size() + 1> tokens{};
  double sum = 0;

  void Add(double ratio) {
    const auto* bound =
        std::lower_bound(kImportanceRatioBounds.begin(), kImportanceRatioBounds.end(), ratio);
    ++tokens[static_cast<size_t>(bound - kImportanceRatioBounds.begin())];
    sum += ratio;
  }
  void Add(const ImportanceRatios& others) {
    for (size_t i = 0; i < tokens.size(); ++i) tokens[i] += others.tokens[i];
    sum += others.sum;
  }
};

}  // namespace freshet

#endif  // FRESHET_TRAINER_LOSS_IMPORTANCE_RATIO_H_
