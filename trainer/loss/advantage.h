#ifndef FRESHET_TRAINER_LOSS_ADVANTAGE_H_
#define FRESHET_TRAINER_LOSS_ADVANTAGE_H_

#include <vector>

#include "absl/status/statusor.h"
#include "job/loss_spec.h"

namespace freshet {

// Added to a standard deviation before dividing by it. Rewards are near 1, so it matters only for
// nearly constant groups.
inline constexpr double kAdvantageEpsilon = 1e-6;

// Larger rewards are rejected: they indicate a faulty scorer, and sums of their squares could
// overflow.
inline constexpr double kMaxRewardMagnitude = 1e30;

// Advantages of one training batch, in the shape of `reward_groups`: one entry per prompt group,
// one reward per sample. With r the rewards of a group of G samples and n those of the batch:
//   grpo                    (r_i - mean(r)) / (std(r) + epsilon)
//                           arXiv:2402.03300, section 4.1.2
//   dr_grpo                 r_i - mean(r)
//                           arXiv:2503.20783, section 3.2
//   rloo                    r_i - sum_{j != i} r_j / (G - 1)
//                           arXiv:2402.14740, section 3
//   reinforce_pp            (r_i - mean(all)) / (std(all) + epsilon)
//                           arXiv:2501.03262
//   reinforce_pp_baseline   d_i / (std(d of all) + epsilon), d_i = r_i - mean(r)
// std is the sample standard deviation (divisor G - 1 or n - 1), as in common implementations; the
// papers leave it open. Constant rewards (to within 1e-12 of the largest magnitude) get advantages
// of exactly 0. REINFORCE++ normalizes over tokens; this implementation normalizes over samples, so
// that long samples do not count more.
//
// Pure; thread-safe.
// Returns:
//   OK: the advantages.
//   INVALID_ARGUMENT: no group, an empty group, a group of 1 if the kind compares within groups, a
//     batch of 1 sample, a reward that is not finite or beyond kMaxRewardMagnitude, epsilon < 0.
absl::StatusOr<std::vector<std::vector<double>>> ComputeAdvantages(
    AdvantageKind kind, const std::vector<std::vector<double>>& reward_groups,
    double epsilon = kAdvantageEpsilon);

// Advantages of turns, in the shape of `returns`: by group, sample and turn. A turn's return is
// compared with the returns of the turns with the same index in the group's other samples
// (reinforce_pp: in the batch), by the formulas above. std is over all turns of the group (or
// batch), each minus the mean of its index. A turn whose index no other sample has gets 0. With one
// turn per sample: ComputeAdvantages.
//
// Pure; thread-safe. INVALID_ARGUMENT: as above, or a sample without turns.
absl::StatusOr<std::vector<std::vector<std::vector<double>>>> ComputeTurnAdvantages(
    AdvantageKind kind, const std::vector<std::vector<std::vector<double>>>& returns,
    double epsilon = kAdvantageEpsilon);

}  // namespace freshet

#endif  // FRESHET_TRAINER_LOSS_ADVANTAGE_H_
