#include "base/str_cat.h"
#include "job/loss_names.h"
#include "job/loss_spec.h"

namespace freshet {
namespace {

std::vector<LossPreset> MakePresets() {
  // GRPO, arXiv:2402.03300 eq. 3; without its KL term: set kl {kind: k3, coef: 0.04} for the
  // paper's.
  LossSpec grpo;
  grpo.aggregate = AggregateKind::kSequenceMean;
  // Dr. GRPO, arXiv:2503.20783: no division by the standard deviation or by each sequence's
  // length.
  LossSpec dr_grpo = grpo;
  dr_grpo.advantage = AdvantageKind::kDrGrpo;
  dr_grpo.aggregate = AggregateKind::kSequenceSumNorm;
  // DAPO, arXiv:2503.14476 eq. 8, the loss only: asymmetric clip and token mean; neither dynamic
  // sampling nor overlong shaping.
  LossSpec dapo = grpo;
  dapo.clip = {0.2, 0.28, std::nullopt};
  dapo.aggregate = AggregateKind::kTokenMean;
  // RLOO, arXiv:2402.14740: leave-one-out baseline, sequence sums; on the first minibatch of a
  // step its gradient is REINFORCE's.
  LossSpec rloo = dr_grpo;
  rloo.advantage = AdvantageKind::kRloo;
  // REINFORCE++, arXiv:2501.03262: advantages normalised over the batch; the KL term is not folded
  // into the reward.
  LossSpec reinforce_pp = dapo;
  reinforce_pp.advantage = AdvantageKind::kReinforcePp;
  reinforce_pp.clip = {0.2, 0.2, std::nullopt};
  // GSPO, arXiv:2507.18071 eq. 5: one ratio per sequence.
  LossSpec gspo = grpo;
  gspo.ratio = RatioLevel::kSequence;
  gspo.clip = {3e-4, 4e-4, std::nullopt};
  // CISPO, arXiv:2506.13585 eq. 4: REINFORCE weighted by the truncated ratio to the behaviour
  // policy, no lower bound; the bound 2 is ours.
  LossSpec cispo = dapo;
  cispo.surrogate = SurrogateKind::kCispo;
  cispo.anchor = AnchorKind::kBehavior;
  cispo.clip = {1.0, 1.0, std::nullopt};
  // Decoupled PPO, arXiv:2505.24298: clip around the proximal policy, weight proximal/behaviour,
  // tokens with a weight above 5 left out.
  LossSpec decoupled = dapo;
  decoupled.clip = {0.2, 0.2, std::nullopt};
  decoupled.correction = {CorrectionKind::kMask, 5.0, 0.0};
  // IcePop, arXiv:2510.18855: GRPO with tokens left out whose proximal/behaviour ratio is outside
  // [0.5, 5].
  LossSpec icepop = grpo;
  icepop.correction = DefaultCorrection(CorrectionKind::kMask);
  return {{"grpo", grpo},   {"dr_grpo", dr_grpo},           {"dapo", dapo},
          {"rloo", rloo},   {"reinforce_pp", reinforce_pp}, {"gspo", gspo},
          {"cispo", cispo}, {"decoupled_ppo", decoupled},   {"icepop", icepop}};
}

}  // namespace

const std::vector<LossPreset>& LossPresets() {
  static const std::vector<LossPreset> presets = MakePresets();
  return presets;
}

absl::StatusOr<LossSpec> ExpandPreset(std::string_view name) {
  for (const LossPreset& preset : LossPresets()) {
    if (preset.name == name) {
      return preset.spec;
    }
  }
  return InvalidArgument(QuoteInput(name), " is not one of ", JoinLossNames(LossPresets()));
}

}  // namespace freshet
