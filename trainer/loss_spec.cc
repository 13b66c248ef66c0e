#include "trainer/loss_spec.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <utility>

#include "services/base/str_cat.h"

namespace freshet {
namespace {

template <typename Kind>
struct Name {
  std::string_view name;
  Kind kind;
};

constexpr std::array<Name<AdvantageKind>, 5> kAdvantages{{
    {"grpo", AdvantageKind::kGrpo},
    {"dr_grpo", AdvantageKind::kDrGrpo},
    {"rloo", AdvantageKind::kRloo},
    {"reinforce_pp", AdvantageKind::kReinforcePp},
    {"reinforce_pp_baseline", AdvantageKind::kReinforcePpBaseline},
}};
constexpr std::array<Name<SurrogateKind>, 2> kSurrogates{{
    {"ppo", SurrogateKind::kPpo},
    {"cispo", SurrogateKind::kCispo},
}};
constexpr std::array<Name<RatioLevel>, 2> kRatios{{
    {"token", RatioLevel::kToken},
    {"sequence", RatioLevel::kSequence},
}};
constexpr std::array<Name<AnchorKind>, 3> kAnchors{{
    {"proximal", AnchorKind::kProximal},
    {"behavior", AnchorKind::kBehavior},
    {"none", AnchorKind::kNone},
}};
constexpr std::array<Name<CorrectionKind>, 4> kCorrections{{
    {"none", CorrectionKind::kNone},
    {"tis", CorrectionKind::kTis},
    {"mask", CorrectionKind::kMask},
    {"seq_tis", CorrectionKind::kSeqTis},
}};
constexpr std::array<Name<KlKind>, 4> kKls{{
    {"none", KlKind::kNone},
    {"k1", KlKind::kK1},
    {"k2", KlKind::kK2},
    {"k3", KlKind::kK3},
}};
constexpr std::array<Name<AggregateKind>, 3> kAggregates{{
    {"token_mean", AggregateKind::kTokenMean},
    {"sequence_mean", AggregateKind::kSequenceMean},
    {"sequence_sum_norm", AggregateKind::kSequenceSumNorm},
}};

constexpr CorrectionSpec kTisDefaults{CorrectionKind::kTis, 2.0, 0.0};
constexpr CorrectionSpec kMaskDefaults{CorrectionKind::kMask, 5.0, 0.5};
constexpr CorrectionSpec kSeqTisDefaults{CorrectionKind::kSeqTis, 2.0, 0.0};

template <typename Kind, size_t kSize>
std::string_view NameOf(const std::array<Name<Kind>, kSize>& names, Kind kind) {
  const auto it = std::find_if(names.begin(), names.end(),
                               [&](const auto& entry) { return entry.kind == kind; });
  return it == names.end() ? "?" : it->name;
}

// Shortest decimal that reads back as the same double, always with a point: YAML 1.1 readers take
// "3e-04" for a string.
std::string Number(double value) {
  const double magnitude = std::abs(value);
  const bool fixed = value == 0 || (magnitude >= 1e-6 && magnitude < 1e15);
  std::array<char, 64> text{};
  const auto end = std::to_chars(text.data(), text.data() + text.size(), value,
                                 fixed ? std::chars_format::fixed : std::chars_format::scientific)
                       .ptr;
  std::string number(text.data(), end);
  if (std::isfinite(value) && number.find('.') == std::string::npos) {
    number.insert(std::min(number.find('e'), number.size()), ".0");
  }
  return number;
}

// Input shown in a message: short and on one line, whatever was typed.
std::string Quoted(std::string_view text) {
  std::string shown;
  for (const char c : text.substr(0, 40)) {
    shown += (c >= ' ' && c <= '~') ? c : '?';
  }
  return StrCat("'", shown, text.size() > 40 ? "..." : "", "'");
}

struct PresetEntry {
  LossPreset preset;
  LossSpec spec;
};

std::vector<PresetEntry> MakePresets() {
  std::vector<PresetEntry> presets;
  LossSpec grpo;
  grpo.aggregate = AggregateKind::kSequenceMean;
  presets.push_back({{"grpo",
                      "GRPO, arXiv:2402.03300 eq. 3; without its KL term: set kl "
                      "{kind: k3, coef: 0.04} for the paper's"},
                     grpo});
  LossSpec dr_grpo = grpo;
  dr_grpo.advantage = AdvantageKind::kDrGrpo;
  dr_grpo.aggregate = AggregateKind::kSequenceSumNorm;
  presets.push_back({{"dr_grpo",
                      "Dr. GRPO, arXiv:2503.20783: no division by the standard deviation or by "
                      "each sequence's length"},
                     dr_grpo});
  LossSpec dapo = grpo;
  dapo.clip = {0.2, 0.28, std::nullopt};
  dapo.aggregate = AggregateKind::kTokenMean;
  presets.push_back({{"dapo",
                      "DAPO, arXiv:2503.14476 eq. 8, the loss only: asymmetric clip and token "
                      "mean; neither dynamic sampling nor overlong shaping"},
                     dapo});
  LossSpec rloo = dr_grpo;
  rloo.advantage = AdvantageKind::kRloo;
  presets.push_back({{"rloo",
                      "RLOO, arXiv:2402.14740: leave-one-out baseline, sequence sums; on the first "
                      "minibatch of a step its gradient is REINFORCE's"},
                     rloo});
  LossSpec reinforce_pp = dapo;
  reinforce_pp.advantage = AdvantageKind::kReinforcePp;
  reinforce_pp.clip = {0.2, 0.2, std::nullopt};
  presets.push_back({{"reinforce_pp",
                      "REINFORCE++, arXiv:2501.03262: advantages normalised over the batch; the "
                      "KL term is not folded into the reward"},
                     reinforce_pp});
  LossSpec gspo = grpo;
  gspo.ratio = RatioLevel::kSequence;
  gspo.clip = {3e-4, 4e-4, std::nullopt};
  presets.push_back({{"gspo", "GSPO, arXiv:2507.18071 eq. 5: one ratio per sequence"}, gspo});
  LossSpec cispo = dapo;
  cispo.surrogate = SurrogateKind::kCispo;
  cispo.anchor = AnchorKind::kBehavior;
  cispo.clip = {1.0, 1.0, std::nullopt};
  presets.push_back({{"cispo",
                      "CISPO, arXiv:2506.13585 eq. 4: REINFORCE weighted by the truncated ratio to "
                      "the behaviour policy, no lower bound; the bound 2 is ours"},
                     cispo});
  LossSpec decoupled = dapo;
  decoupled.clip = {0.2, 0.2, std::nullopt};
  decoupled.correction = {CorrectionKind::kMask, 5.0, 0.0};
  presets.push_back({{"decoupled_ppo",
                      "decoupled PPO, arXiv:2505.24298: clip around the proximal policy, weight "
                      "proximal/behaviour, tokens with a weight above 5 left out"},
                     decoupled});
  LossSpec icepop = grpo;
  icepop.correction = kMaskDefaults;
  presets.push_back({{"icepop",
                      "IcePop, arXiv:2510.18855: GRPO with tokens left out whose "
                      "proximal/behaviour ratio is outside [0.5, 5]"},
                     icepop});
  return presets;
}

const std::vector<PresetEntry>& Presets() {
  static const std::vector<PresetEntry> presets = MakePresets();
  return presets;
}

template <typename Names>
std::string JoinNames(const Names& names) {
  std::string joined;
  for (const auto& entry : names) {
    joined += StrCat(joined.empty() ? "" : ", ", entry.name);
  }
  return joined;
}

// Lays overrides over a preset, collecting faults.
class Resolver {
 public:
  Resolver(const LossOverrides& overrides, const LossBatchShape& shape)
      : in_(overrides), shape_(shape) {}

  std::variant<LossSpec, std::vector<LossFault>> Resolve() {
    const absl::StatusOr<LossSpec> preset = ExpandPreset(in_.preset.value_or("grpo"));
    if (!preset.ok()) {
      Fault("preset", Message(preset.status()));
    } else {
      spec_ = *preset;
    }
    Choose("advantage", in_.advantage, kAdvantages, spec_.advantage);
    Choose("surrogate", in_.surrogate, kSurrogates, spec_.surrogate);
    Choose("ratio", in_.ratio, kRatios, spec_.ratio);
    Choose("anchor", in_.anchor, kAnchors, spec_.anchor);
    Choose("aggregate", in_.aggregate, kAggregates, spec_.aggregate);
    ResolveClip();
    ResolveCorrection();
    ResolveKl();
    if (in_.entropy_coef) {
      spec_.entropy_coef = *in_.entropy_coef;
      CheckRange("entropy_coef", spec_.entropy_coef, 0, 1000);
    }
    CheckAnchor();
    CheckGroups();
    if (faults_.empty()) {
      return spec_;
    }
    return std::move(faults_);
  }

 private:
  void Fault(std::string_view key, std::string message) {
    faults_.push_back({StrCat("loss.", key), std::move(message)});
  }

  template <typename Kind, size_t kSize>
  void Choose(std::string_view key, const std::optional<std::string>& name,
              const std::array<Name<Kind>, kSize>& names, Kind& out) {
    if (!name) {
      return;
    }
    for (const auto& entry : names) {
      if (entry.name == *name) {
        out = entry.kind;
        return;
      }
    }
    Fault(key, StrCat(Quoted(*name), " is not one of ", JoinNames(names)));
  }

  void CheckRange(std::string_view key, double value, double low, double high) {
    if (!(value >= low && value <= high)) {
      Fault(key, StrCat(Number(value), " is outside [", Number(low), ", ", Number(high), "]"));
    }
  }

  // As CheckRange, without the lower end.
  void CheckAbove(std::string_view key, double value, double low, double high) {
    if (!(value > low && value <= high)) {
      Fault(key, StrCat(Number(value), " is outside (", Number(low), ", ", Number(high), "]"));
    }
  }

  void ResolveClip() {
    if (in_.clip_low) {
      spec_.clip.low = *in_.clip_low;
    }
    if (in_.clip_high) {
      spec_.clip.high = *in_.clip_high;
    }
    if (in_.clip_dual) {
      spec_.clip.dual = in_.clip_dual;
    }
    CheckAbove("clip.low", spec_.clip.low, 0, 1);
    CheckAbove("clip.high", spec_.clip.high, 0, 1000);
    if (spec_.clip.dual) {
      CheckAbove("clip.dual", *spec_.clip.dual, 1, 1000);
      if (spec_.surrogate != SurrogateKind::kPpo) {
        Fault("clip.dual", "a dual clip needs surrogate ppo: remove clip.dual");
      }
    }
  }

  void ResolveCorrection() {
    CorrectionKind kind = spec_.correction.kind;
    Choose("correction.kind", in_.correction_kind, kCorrections, kind);
    if (kind != spec_.correction.kind) {
      spec_.correction = kind == CorrectionKind::kTis      ? kTisDefaults
                         : kind == CorrectionKind::kMask   ? kMaskDefaults
                         : kind == CorrectionKind::kSeqTis ? kSeqTisDefaults
                                                           : CorrectionSpec{};
    }
    if (kind == CorrectionKind::kNone) {
      for (const auto& [key, value] : {std::pair{"correction.cap", in_.correction_cap},
                                       std::pair{"correction.low", in_.correction_low}}) {
        if (value) {
          Fault(key, StrCat("set to ", Number(*value),
                            " but correction.kind is none: set kind tis, mask or seq_tis"));
        }
      }
      return;
    }
    spec_.correction.cap = in_.correction_cap.value_or(spec_.correction.cap);
    spec_.correction.low = in_.correction_low.value_or(spec_.correction.low);
    // Bounds on either side of 1, so that on-policy tokens keep the weight 1.
    CheckRange("correction.cap", spec_.correction.cap, 1, 1e6);
    CheckRange("correction.low", spec_.correction.low, 0, 1);
  }

  void ResolveKl() {
    const KlKind preset_kind = spec_.kl.kind;
    Choose("kl.kind", in_.kl_kind, kKls, spec_.kl.kind);
    if (spec_.kl.kind == KlKind::kNone) {
      spec_.kl.coef = 0;
      if (in_.kl_coef && *in_.kl_coef != 0) {
        Fault("kl.coef",
              StrCat("set to ", Number(*in_.kl_coef), " but kl.kind is none: set kind k3"));
      }
      return;
    }
    if (in_.kl_coef) {
      spec_.kl.coef = *in_.kl_coef;
      CheckRange("kl.coef", spec_.kl.coef, 0, 1000);
      if (spec_.kl.coef == 0) {
        spec_.kl = KlSpec{};
      }
    } else if (preset_kind == KlKind::kNone) {
      Fault("kl.coef", StrCat("missing: kl.kind ", NameOf(kKls, spec_.kl.kind),
                              " needs a coefficient, for example 0.001"));
    }
  }

  void CheckAnchor() {
    const std::string_view correction = NameOf(kCorrections, spec_.correction.kind);
    const bool corrected = spec_.correction.kind != CorrectionKind::kNone;
    if (spec_.anchor == AnchorKind::kBehavior && corrected) {
      Fault(
          "correction.kind",
          StrCat("two importance corrections: ", correction, " weights by proximal/behaviour, but ",
                 "with anchor behavior the ratio already divides by behaviour: set anchor "
                 "proximal or correction.kind none"));
    }
    if (spec_.anchor != AnchorKind::kNone) {
      return;
    }
    if (corrected) {
      Fault("correction.kind", StrCat(correction,
                                      " corrects a proximal anchor, but anchor is none: "
                                      "set anchor proximal or correction.kind none"));
    }
    for (const auto& [key, value] :
         {std::pair{"clip.low", in_.clip_low}, std::pair{"clip.high", in_.clip_high},
          std::pair{"clip.dual", in_.clip_dual}}) {
      if (value) {
        Fault(key, StrCat("set to ", Number(*value),
                          " but anchor is none, so there is no ratio to clip: remove it or set "
                          "anchor proximal"));
      }
    }
    if (spec_.ratio == RatioLevel::kSequence) {
      Fault("ratio", "sequence needs an anchor, but anchor is none: set anchor proximal");
    }
    if (spec_.surrogate == SurrogateKind::kCispo) {
      Fault("surrogate",
            "cispo needs an anchor, but anchor is none: set anchor behavior or proximal");
    }
    spec_.clip = ClipSpec{};
  }

  void CheckGroups() {
    if (shape_.group_size < 1 || shape_.groups_per_step < 1) {
      Fault("advantage", StrCat("group size ", shape_.group_size, " and groups per step ",
                                shape_.groups_per_step, " must be at least 1"));
      return;
    }
    const std::string_view name = NameOf(kAdvantages, spec_.advantage);
    if (spec_.advantage == AdvantageKind::kReinforcePp) {
      if (shape_.group_size == 1 && shape_.groups_per_step == 1) {
        Fault("advantage", StrCat(name,
                                  " compares the samples of a step, but a step has 1: set "
                                  "group_size or groups per step to at least 2"));
      }
    } else if (shape_.group_size == 1) {
      Fault("advantage", StrCat(name,
                                " compares the samples of a group, but group_size is 1: set "
                                "group_size to at least 2, or advantage reinforce_pp"));
    }
  }

  const LossOverrides& in_;
  const LossBatchShape& shape_;
  LossSpec spec_;
  std::vector<LossFault> faults_;
};

}  // namespace

const std::vector<LossPreset>& LossPresets() {
  static const std::vector<LossPreset> presets = [] {
    std::vector<LossPreset> out;
    for (const PresetEntry& entry : Presets()) {
      out.push_back(entry.preset);
    }
    return out;
  }();
  return presets;
}

absl::StatusOr<LossSpec> ExpandPreset(std::string_view name) {
  for (const PresetEntry& entry : Presets()) {
    if (entry.preset.name == name) {
      return entry.spec;
    }
  }
  return InvalidArgument(Quoted(name), " is not one of ", JoinNames(LossPresets()));
}

std::variant<LossSpec, std::vector<LossFault>> ResolveLoss(const LossOverrides& overrides,
                                                           const LossBatchShape& shape) {
  return Resolver(overrides, shape).Resolve();
}

std::string DescribeLoss(const LossSpec& spec) {
  std::string out = StrCat("loss: {advantage: ", NameOf(kAdvantages, spec.advantage));
  if (spec.anchor == AnchorKind::kNone) {
    out += ", anchor: none";
  } else {
    if (spec.surrogate != SurrogateKind::kPpo) {
      out += StrCat(", surrogate: ", NameOf(kSurrogates, spec.surrogate));
    }
    out += StrCat(", ratio: ", NameOf(kRatios, spec.ratio),
                  ", anchor: ", NameOf(kAnchors, spec.anchor),
                  ", clip: {low: ", Number(spec.clip.low), ", high: ", Number(spec.clip.high));
    out += spec.clip.dual ? StrCat(", dual: ", Number(*spec.clip.dual), "}") : "}";
  }
  out += StrCat(", correction: {kind: ", NameOf(kCorrections, spec.correction.kind));
  if (spec.correction.kind != CorrectionKind::kNone) {
    out += StrCat(", cap: ", Number(spec.correction.cap));
    if (spec.correction.low != 0 || spec.correction.kind == CorrectionKind::kMask) {
      out += StrCat(", low: ", Number(spec.correction.low));
    }
  }
  out += StrCat("}, kl: {kind: ", NameOf(kKls, spec.kl.kind));
  if (spec.kl.kind != KlKind::kNone) {
    out += StrCat(", coef: ", Number(spec.kl.coef));
  }
  out += StrCat("}, aggregate: ", NameOf(kAggregates, spec.aggregate));
  if (spec.entropy_coef != 0) {
    out += StrCat(", entropy_coef: ", Number(spec.entropy_coef));
  }
  return out + "}";
}

}  // namespace freshet
