#ifndef FRESHET_JOB_LOSS_SPEC_H_
#define FRESHET_JOB_LOSS_SPEC_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace freshet {

// The policy loss as data. It involves three policies: behavior pi_b (the engine at sampling time),
// proximal pi_p (the trainer at the start of the training step) and current pi_theta. Formulas and
// sources: advantage.h and loss.h.

// How rewards become advantages.
enum class AdvantageKind {
  kGrpo,                 // (r - group mean) / group standard deviation
  kDrGrpo,               // r - group mean
  kRloo,                 // r - mean of the group's other samples
  kReinforcePp,          // (r - batch mean) / batch standard deviation
  kReinforcePpBaseline,  // (r - group mean) / batch standard deviation of that difference
};

// kPpo: clipped surrogate. kCispo: the clipped ratio is a constant weight of the log-prob.
enum class SurrogateKind { kPpo, kCispo };

// kSequence: geometric mean of a sequence's token ratios (GSPO).
enum class RatioLevel { kToken, kSequence };

// Denominator of the ratio. kNone: no ratio, plain REINFORCE.
enum class AnchorKind { kProximal, kBehavior, kNone };

// How the weight pi_p / pi_b of the policy term is treated: truncated (kTis), kept only inside
// [low, cap] (kMask, IcePop), or the whole sequence's product, truncated (kSeqTis).
enum class CorrectionKind { kNone, kTis, kMask, kSeqTis };

// Estimator of KL(pi_theta || pi_ref), which is added to the loss.
enum class KlKind { kNone, kK1, kK2, kK3 };

enum class AggregateKind {
  kTokenMean,        // mean over all tokens in the batch
  kSequenceMean,     // mean over sequences of the mean over their tokens
  kSequenceSumNorm,  // mean over sequences of (sum over their tokens / max tokens)
};

// The ratio is clipped to [1 - low, 1 + high]. `dual` caps the loss of tokens with a negative
// advantage at -dual * advantage.
struct ClipSpec {
  double low = 0.2;
  double high = 0.2;
  std::optional<double> dual;
  bool operator==(const ClipSpec&) const = default;
};

struct CorrectionSpec {
  CorrectionKind kind = CorrectionKind::kNone;
  double cap = 0;
  double low = 0;
  bool operator==(const CorrectionSpec&) const = default;
};

struct KlSpec {
  KlKind kind = KlKind::kNone;
  double coef = 0;
  bool operator==(const KlSpec&) const = default;
};

// Each turn of an episode has an advantage of its own, from the rewards from that turn on.
struct TurnCredit {
  double discount = 1;  // per turn
  bool operator==(const TurnCredit&) const = default;
};

// No sample with a negative advantage bears loss from the entropy `high` on, all do up to `low`; in
// nats per token (trainer/learner/loss_selection.h).
struct EntropyControl {
  double low = 0;
  double high = 0;
  bool operator==(const EntropyControl&) const = default;
};

// The advantage of tokens from the text `begin` to the text `end`, with both, is multiplied by
// `weight` (trainer/learner/token_weights.h).
struct TokenWeight {
  std::string begin;
  std::string end;  // "": the end of the turn
  double weight = 1;
  bool operator==(const TokenWeight&) const = default;
};

struct LossSpec {
  AdvantageKind advantage = AdvantageKind::kGrpo;
  std::optional<TurnCredit> credit;  // absent: a sample has one advantage, from its whole reward
  SurrogateKind surrogate = SurrogateKind::kPpo;
  RatioLevel ratio = RatioLevel::kToken;
  AnchorKind anchor = AnchorKind::kProximal;
  ClipSpec clip;  // unused if anchor is kNone
  CorrectionSpec correction;
  KlSpec kl;
  AggregateKind aggregate = AggregateKind::kTokenMean;
  double entropy_coef = 0;        // entropy_coef * entropy is subtracted from the loss
  double turn_entropy_share = 1;  // of each group's turns, those with the highest entropy bear loss
  std::optional<EntropyControl> entropy_control;
  std::vector<TokenWeight> token_weights;
  // Samples count once more in place of those that were not asked (trainer/learner/duplicates.h).
  bool duplicate = false;
  bool operator==(const LossSpec&) const = default;

  // Log-probs that PolicyLoss needs in addition to those of the current policy.
  bool NeedsProximal() const {
    return anchor == AnchorKind::kProximal || correction.kind != CorrectionKind::kNone;
  }
  bool NeedsBehavior() const {
    return anchor == AnchorKind::kBehavior || correction.kind != CorrectionKind::kNone;
  }
  bool NeedsReference() const { return kl.kind != KlKind::kNone; }
  bool NeedsEntropy() const { return entropy_coef != 0; }
};

struct LossPreset {
  std::string_view name;
  LossSpec spec;
};

// All presets, in documentation order. Pure; thread-safe.
const std::vector<LossPreset>& LossPresets();

// Expands a preset. A preset covers only the loss; dynamic sampling, length shaping and so on are
// separate job keys. INVALID_ARGUMENT: unknown name; the message lists the valid ones.
absl::StatusOr<LossSpec> ExpandPreset(std::string_view name);

// A one-line warning with a fix if the loss trains on stale samples without an importance weight;
// otherwise nullopt. Pure; thread-safe.
std::optional<std::string> UncorrectedStaleness(const LossSpec& spec, int64_t max_staleness);

// The value of a job's `loss` as one line of YAML with all effective keys:
//   {advantage: grpo, ratio: token, anchor: proximal, clip: {low: 0.2, high: 0.28}, ...}
// Numbers round-trip.
std::string DescribeLoss(const LossSpec& spec);

}  // namespace freshet

#endif  // FRESHET_JOB_LOSS_SPEC_H_
