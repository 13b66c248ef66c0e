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

struct LossSpec {
  AdvantageKind advantage = AdvantageKind::kGrpo;
  SurrogateKind surrogate = SurrogateKind::kPpo;
  RatioLevel ratio = RatioLevel::kToken;
  AnchorKind anchor = AnchorKind::kProximal;
  ClipSpec clip;  // unused if anchor is kNone
  CorrectionSpec correction;
  KlSpec kl;
  AggregateKind aggregate = AggregateKind::kTokenMean;
  double entropy_coef = 0;  // entropy_coef * entropy is subtracted from the loss
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

// User input: a preset name and the keys that override it. Names are those that DescribeLoss
// prints.
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

// Job settings that decide whether an advantage is defined and whether samples can be stale.
struct LossBatchShape {
  int64_t group_size = 0;       // samples per prompt
  int64_t groups_per_step = 0;  // prompts per training step
  int64_t max_staleness = 0;    // maximum number of versions between a token and the step that
                                // trains on it
};

// One reason why a loss is rejected. `field` is the key's path ("loss.correction.kind"); `message`
// is one line without the path: value, bound, fix.
struct LossError {
  std::string field;
  std::string message;
};

struct LossPreset {
  std::string_view name;
  std::string_view summary;  // one line, for users
};

// All presets, in documentation order. Pure; thread-safe.
const std::vector<LossPreset>& LossPresets();

// Expands a preset. A preset covers only the loss; dynamic sampling, length shaping and so on are
// separate job keys. INVALID_ARGUMENT: unknown name; the message lists the valid ones.
absl::StatusOr<LossSpec> ExpandPreset(std::string_view name);

// A one-line warning with a fix if the loss trains on stale samples without an importance weight;
// otherwise nullopt. Pure; thread-safe.
std::optional<std::string> UncorrectedStaleness(const LossSpec& spec, int64_t max_staleness);

// Expands the preset, applies the overrides and checks for contradictions. Returns the loss, or at
// least one error. A correction kind that differs from the preset's gets its own defaults (tis: cap
// 2; mask: low 0.5, cap 5; seq_tis: cap 2). If neither preset nor overrides name a kind, the kind
// is tis when samples can be stale and the anchor is proximal. kl.coef 0 disables the KL term, like
// kl.kind none. Pure; thread-safe.
//
// Errors: an unknown name; a number that is out of range or not finite; a correction with anchor
// behavior (same effect twice) or none; a clip, ratio level or cispo without an anchor; a dual clip
// outside ppo; a cap, low or coefficient without its kind; a KL kind without a coefficient; an
// advantage that is undefined or always zero for this group size.
std::variant<LossSpec, std::vector<LossError>> ResolveLoss(const LossOverrides& overrides,
                                                           const LossBatchShape& shape);

// The loss as one line of YAML with all effective keys:
//   loss: {advantage: grpo, ratio: token, anchor: proximal, clip: {low: 0.2, high: 0.28}, ...}
// Numbers round-trip.
std::string DescribeLoss(const LossSpec& spec);

}  // namespace freshet

#endif  // FRESHET_JOB_LOSS_SPEC_H_
