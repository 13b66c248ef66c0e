#ifndef FRESHET_JOB_LOSS_SPEC_H_
#define FRESHET_JOB_LOSS_SPEC_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"

namespace freshet {

// The policy loss as data. Three policies appear: behaviour pi_b (the engine, when it sampled),
// proximal pi_p (the trainer, at the start of the training step) and current pi_theta.
// What each key computes, with its sources, is in advantage.h and loss.h.

// How rewards become advantages.
enum class AdvantageKind {
  kGrpo,                 // (r - group mean) / group standard deviation
  kDrGrpo,               // r - group mean
  kRloo,                 // r - mean of the group's other samples
  kReinforcePp,          // (r - batch mean) / batch standard deviation
  kReinforcePpBaseline,  // (r - group mean) / batch standard deviation of that difference
};

// kPpo: clipped surrogate. kCispo: clipped ratio as a constant weight of the log-prob.
enum class SurrogateKind { kPpo, kCispo };

// kSequence: geometric mean of the token ratios of a sequence (GSPO).
enum class RatioLevel { kToken, kSequence };

// The denominator of the ratio. kNone: no ratio, plain REINFORCE.
enum class AnchorKind { kProximal, kBehavior, kNone };

// Weight pi_p / pi_b of the policy term: truncated (kTis), kept only inside [low, cap] (kMask,
// IcePop), or the whole sequence's product, truncated (kSeqTis).
enum class CorrectionKind { kNone, kTis, kMask, kSeqTis };

// Estimator of KL(pi_theta || pi_ref) that is added to the loss.
enum class KlKind { kNone, kK1, kK2, kK3 };

enum class AggregateKind {
  kTokenMean,        // mean over all tokens of the batch
  kSequenceMean,     // mean over sequences of the mean over a sequence's tokens
  kSequenceSumNorm,  // mean over sequences of (sum over a sequence's tokens / max tokens)
};

// The ratio is clipped to [1 - low, 1 + high]. `dual`: for negative advantages the loss of a token
// is at most -dual * advantage.
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

struct LossSpec {
  AdvantageKind advantage = AdvantageKind::kGrpo;
  SurrogateKind surrogate = SurrogateKind::kPpo;
  RatioLevel ratio = RatioLevel::kToken;
  AnchorKind anchor = AnchorKind::kProximal;
  ClipSpec clip;  // without meaning when anchor is kNone
  CorrectionSpec correction;
  KlSpec kl;
  AggregateKind aggregate = AggregateKind::kTokenMean;
  double entropy_coef = 0;  // entropy_coef * entropy is subtracted from the loss
  bool operator==(const LossSpec&) const = default;

  // Which log-probs PolicyLoss needs beside those of the current policy.
  bool NeedsProximal() const {
    return anchor == AnchorKind::kProximal || correction.kind != CorrectionKind::kNone;
  }
  bool NeedsBehavior() const {
    return anchor == AnchorKind::kBehavior || correction.kind != CorrectionKind::kNone;
  }
  bool NeedsReference() const { return kl.kind != KlKind::kNone; }
  bool NeedsEntropy() const { return entropy_coef != 0; }
};

// What a user wrote: a preset name and any key that differs from it. Names are those of the YAML
// form that DescribeLoss prints.
struct LossOverrides {
  std::optional<std::string> preset;  // default: grpo
  std::optional<std::string> advantage;
  std::optional<std::string> surrogate;
  std::optional<std::string> ratio;
  std::optional<std::string> anchor;
  std::optional<double> clip_low;
  std::optional<double> clip_high;
  std::optional<double> clip_dual;
  std::optional<std::string> correction_kind;
  std::optional<double> correction_cap;
  std::optional<double> correction_low;
  std::optional<std::string> kl_kind;
  std::optional<double> kl_coef;
  std::optional<std::string> aggregate;
  std::optional<double> entropy_coef;
};

// The part of a job that decides whether an advantage is defined, and whether samples are stale.
struct LossBatchShape {
  int64_t group_size = 0;       // samples per prompt
  int64_t groups_per_step = 0;  // prompts per training step
  int64_t max_staleness = 0;    // most versions between a token and the step that trains on it
};

// One reason why a loss is refused. `field` is the key's path ("loss.correction.kind"); `message`
// is one line without the path: value, bound, fix.
struct LossError {
  std::string field;
  std::string message;
};

struct LossPreset {
  std::string_view name;
  std::string_view summary;  // one line, for people
};

// Every preset, in the order of the documentation. Pure; thread-safe.
const std::vector<LossPreset>& LossPresets();

// The loss that a preset stands for. A preset is the loss only: dynamic sampling, length shaping
// and the like are other keys of a job. Returns:
//   OK: the loss.
//   INVALID_ARGUMENT: unknown name; the message lists the valid ones.
absl::StatusOr<LossSpec> ExpandPreset(std::string_view name);

// A warning of one line, with the fix, if the loss trains on stale samples without an importance
// weight; nullopt if it has one or `max_staleness` is 0. Pure; thread-safe.
std::optional<std::string> UncorrectedStaleness(const LossSpec& spec, int64_t max_staleness);

// Expands the preset, lays the overrides over it and refuses contradictions, all at once: either
// the loss or at least one error. A correction kind that differs from the preset's takes its own
// defaults (tis: cap 2; mask: low 0.5, cap 5; seq_tis: cap 2). Where neither the preset nor the
// overrides name a kind, samples may be stale and the anchor is proximal, the kind is tis. kl.coef
// 0 switches the KL term off, as kl.kind none does. Pure; thread-safe.
//
// Refused: an unknown name; a number out of range or not finite; a correction whose effect the
// anchor already has (behavior) or that has no anchor (none); a clip, a ratio level or cispo
// without an anchor; a dual clip outside ppo; a cap, low or coefficient without its kind, and a KL
// kind without a coefficient; an advantage that groups of this size leave undefined or always zero.
std::variant<LossSpec, std::vector<LossError>> ResolveLoss(const LossOverrides& overrides,
                                                           const LossBatchShape& shape);

// The loss as one line of YAML, every key that has an effect written out:
//   loss: {advantage: grpo, ratio: token, anchor: proximal, clip: {low: 0.2, high: 0.28}, ...}
// Numbers round-trip.
std::string DescribeLoss(const LossSpec& spec);

}  // namespace freshet

#endif  // FRESHET_JOB_LOSS_SPEC_H_
