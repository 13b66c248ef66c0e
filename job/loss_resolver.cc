#include <optional>
#include <tuple>
#include <utility>

#include "base/str_cat.h"
#include "job/job_kind.h"
#include "job/loss_names.h"
#include "job/loss_setup.h"

namespace freshet {
namespace {

// Applies overrides to a preset and collects errors.
class Resolver {
 public:
  Resolver(const job::v1::Loss& keys, const LossBatchShape& shape) : in_(keys), shape_(shape) {}

  std::variant<LossSpec, std::vector<LossError>> Resolve() {
    const absl::StatusOr<LossSpec> preset = ExpandPreset(in_.has_preset() ? in_.preset() : "grpo");
    if (!preset.ok()) {
      AddError("preset", Message(preset.status()));
    } else {
      spec_ = *preset;
    }
    Choose("advantage", in_.has_advantage(), in_.advantage(), kAdvantages, spec_.advantage);
    Choose("surrogate", in_.has_surrogate(), in_.surrogate(), kSurrogates, spec_.surrogate);
    Choose("ratio", in_.has_ratio(), in_.ratio(), kRatios, spec_.ratio);
    Choose("anchor", in_.has_anchor(), in_.anchor(), kAnchors, spec_.anchor);
    Choose("aggregate", in_.has_aggregate(), in_.aggregate(), kAggregates, spec_.aggregate);
    ResolveCredit();
    ResolveClip();
    ResolveCorrection();
    ResolveKl();
    if (in_.has_entropy_coef()) {
      spec_.entropy_coef = in_.entropy_coef();
      CheckRange("entropy_coef", spec_.entropy_coef, 0, 1000);
    }
    ResolveSelection();
    ResolveNotAsked();
    CheckAnchor();
    CheckGroups();
    if (errors_.empty()) {
      return spec_;
    }
    return std::move(errors_);
  }

 private:
  void AddError(std::string_view key, std::string message) {
    errors_.push_back({StrCat("loss.", key), std::move(message)});
  }

  template <typename Kind, size_t kSize>
  void Choose(std::string_view key, bool given, const std::string& name,
              const std::array<LossName<Kind>, kSize>& names, Kind& out) {
    if (!given) {
      return;
    }
    for (const auto& entry : names) {
      if (entry.name == name) {
        out = entry.kind;
        return;
      }
    }
    AddError(key, StrCat(QuoteInput(name), " is not one of ", JoinLossNames(names)));
  }

  void CheckRange(std::string_view key, double value, double low, double high) {
    if (!(value >= low && value <= high)) {
      AddError(key, StrCat(LossNumber(value), " is outside [", LossNumber(low), ", ",
                           LossNumber(high), "]"));
    }
  }

  // Like CheckRange, but excludes `low`.
  void CheckAbove(std::string_view key, double value, double low, double high) {
    if (!(value > low && value <= high)) {
      AddError(key, StrCat(LossNumber(value), " is outside (", LossNumber(low), ", ",
                           LossNumber(high), "]"));
    }
  }

  void ResolveCredit() {
    const std::string& credit = in_.credit();
    if (credit == "turn") {
      spec_.credit.emplace();
      if (in_.has_turn_discount()) spec_.credit->discount = in_.turn_discount();
      CheckRange("turn_discount", spec_.credit->discount, 0, 1);
    } else if (in_.has_credit() && credit != "sample") {
      AddError("credit", StrCat(QuoteInput(credit), " is not one of sample, turn"));
    }
  }

  void ResolveClip() {
    if (in_.clip().has_low()) spec_.clip.low = in_.clip().low();
    if (in_.clip().has_high()) spec_.clip.high = in_.clip().high();
    if (in_.clip().has_dual()) spec_.clip.dual = in_.clip().dual();
    CheckAbove("clip.low", spec_.clip.low, 0, 1);
    CheckAbove("clip.high", spec_.clip.high, 0, 1000);
    if (spec_.clip.dual) {
      CheckAbove("clip.dual", *spec_.clip.dual, 1, 1000);
      if (spec_.surrogate != SurrogateKind::kPpo) {
        AddError("clip.dual", "a dual clip needs surrogate ppo: remove clip.dual");
      }
    }
  }

  void ResolveCorrection() {
    const job::v1::Correction& keys = in_.correction();
    CorrectionKind kind = spec_.correction.kind;
    Choose("correction.kind", keys.has_kind(), keys.kind(), kCorrections, kind);
    if (!keys.has_kind() && spec_.anchor == AnchorKind::kProximal &&
        UncorrectedStaleness(spec_, shape_.max_staleness)) {
      kind = CorrectionKind::kTis;
    }
    if (kind != spec_.correction.kind) {
      spec_.correction = DefaultCorrection(kind);
    }
    if (kind == CorrectionKind::kNone) {
      for (const auto& [key, given, value] :
           {std::tuple{"correction.cap", keys.has_cap(), keys.cap()},
            std::tuple{"correction.low", keys.has_low(), keys.low()}}) {
        if (given) {
          AddError(key, StrCat("set to ", LossNumber(value),
                               " but correction.kind is none: set kind tis, mask or seq_tis"));
        }
      }
      return;
    }
    if (keys.has_cap()) spec_.correction.cap = keys.cap();
    if (keys.has_low()) spec_.correction.low = keys.low();
    // The bounds include 1, so that on-policy tokens keep weight 1.
    CheckRange("correction.cap", spec_.correction.cap, 1, 1e6);
    CheckRange("correction.low", spec_.correction.low, 0, 1);
  }

  void ResolveKl() {
    const KlKind preset_kind = spec_.kl.kind;
    Choose("kl.kind", in_.kl().has_kind(), in_.kl().kind(), kKls, spec_.kl.kind);
    if (spec_.kl.kind == KlKind::kNone) {
      spec_.kl.coef = 0;
      if (in_.kl().coef() != 0) {
        AddError("kl.coef", StrCat("set to ", LossNumber(in_.kl().coef()),
                                   " but kl.kind is none: set kind k3"));
      }
      return;
    }
    if (in_.kl().has_coef()) {
      spec_.kl.coef = in_.kl().coef();
      CheckRange("kl.coef", spec_.kl.coef, 0, 1000);
      if (spec_.kl.coef == 0) {
        spec_.kl = KlSpec{};
      }
    } else if (preset_kind == KlKind::kNone) {
      AddError("kl.coef", StrCat("missing: kl.kind ", NameOf(kKls, spec_.kl.kind),
                                 " needs a coefficient, for example 0.001"));
    }
  }

  void ResolveSelection() {
    if (in_.has_turn_entropy_share()) {
      spec_.turn_entropy_share = in_.turn_entropy_share();
      CheckAbove("turn_entropy_share", spec_.turn_entropy_share, 0, 1);
    }
    if (in_.has_entropy_control()) {
      const double low = in_.entropy_control().low();
      const double high = in_.entropy_control().high();
      spec_.entropy_control = {low, high};
      CheckRange("entropy_control.low", low, 0, 1000);
      CheckRange("entropy_control.high", high, 0, 1000);
      if (high < low) {
        AddError("entropy_control.high", StrCat(LossNumber(high), " is below entropy_control.low ",
                                                LossNumber(low), ": set it to at least that"));
      }
    }
    for (int i = 0; i < in_.token_weights_size(); ++i) {
      const job::v1::TokenWeight& part = in_.token_weights(i);
      const std::string key = StrCat("token_weights.", i);
      if (part.begin().empty())
        AddError(key + ".begin", "empty: name the text that begins the part");
      CheckRange(key + ".weight", part.weight(), 0, 100);
      for (const TokenWeight& earlier : spec_.token_weights) {
        if (earlier.begin == part.begin()) {
          AddError(key + ".begin", StrCat(QuoteInput(part.begin()),
                                          " begins an earlier part of the list too: keep one"));
        }
      }
      spec_.token_weights.push_back({part.begin(), part.end(), part.weight()});
    }
  }

  void ResolveNotAsked() {
    spec_.duplicate = in_.not_asked() == "duplicate";
    if (in_.has_not_asked() && !spec_.duplicate && in_.not_asked() != "drop") {
      AddError("not_asked", StrCat(QuoteInput(in_.not_asked()), " is not one of drop, duplicate"));
    }
  }

  void CheckAnchor() {
    const std::string_view correction = NameOf(kCorrections, spec_.correction.kind);
    const bool corrected = spec_.correction.kind != CorrectionKind::kNone;
    if (spec_.anchor == AnchorKind::kBehavior && corrected) {
      AddError(
          "correction.kind",
          StrCat("two importance corrections: ", correction, " weights by proximal/behaviour, but ",
                 "with anchor behavior the ratio already divides by behaviour: set anchor "
                 "proximal or correction.kind none"));
    }
    if (spec_.anchor != AnchorKind::kNone) {
      return;
    }
    if (corrected) {
      AddError("correction.kind", StrCat(correction,
                                         " corrects a proximal anchor, but anchor is none: "
                                         "set anchor proximal or correction.kind none"));
    }
    const job::v1::Clip& clip = in_.clip();
    for (const auto& [key, given, value] :
         {std::tuple{"clip.low", clip.has_low(), clip.low()},
          std::tuple{"clip.high", clip.has_high(), clip.high()},
          std::tuple{"clip.dual", clip.has_dual(), clip.dual()}}) {
      if (given) {
        AddError(key, StrCat("set to ", LossNumber(value),
                             " but anchor is none, so there is no ratio to clip: remove it or set "
                             "anchor proximal"));
      }
    }
    if (spec_.ratio == RatioLevel::kSequence) {
      AddError("ratio", "sequence needs an anchor, but anchor is none: set anchor proximal");
    }
    if (spec_.surrogate == SurrogateKind::kCispo) {
      AddError("surrogate",
               "cispo needs an anchor, but anchor is none: set anchor behavior or proximal");
    }
    spec_.clip = ClipSpec{};
  }

  void CheckGroups() {
    if (shape_.group_size < 1 || shape_.groups_per_step < 1) {
      AddError("advantage", StrCat("group size ", shape_.group_size, " and groups per step ",
                                   shape_.groups_per_step, " must be at least 1"));
      return;
    }
    const std::string_view name = NameOf(kAdvantages, spec_.advantage);
    if (spec_.advantage == AdvantageKind::kReinforcePp) {
      if (shape_.group_size == 1 && shape_.groups_per_step == 1) {
        AddError("advantage", StrCat(name,
                                     " compares the samples of a step, but a step has 1: set "
                                     "group_size or groups per step to at least 2"));
      }
    } else if (shape_.group_size == 1) {
      AddError("advantage", StrCat(name,
                                   " compares the samples of a group, but group_size is 1: set "
                                   "group_size to at least 2, or advantage reinforce_pp"));
    }
  }

  const job::v1::Loss& in_;
  const LossBatchShape& shape_;
  LossSpec spec_;
  std::vector<LossError> errors_;
};

}  // namespace

std::optional<std::string> UncorrectedStaleness(const LossSpec& spec, int64_t max_staleness) {
  if (max_staleness <= 0 || spec.anchor == AnchorKind::kBehavior ||
      spec.correction.kind != CorrectionKind::kNone) {
    return std::nullopt;
  }
  return StrCat("samples up to ", max_staleness, max_staleness == 1 ? " version" : " versions",
                " old are trained without an importance weight: ",
                spec.anchor == AnchorKind::kNone
                    ? "loss.anchor is none: set it to proximal"
                    : "loss.correction.kind is none: set loss.correction to {kind: tis, cap: 2.0}");
}

std::variant<LossSpec, std::vector<LossError>> ResolveLoss(const job::v1::Loss& keys,
                                                           const LossBatchShape& shape) {
  return Resolver(keys, shape).Resolve();
}

std::variant<LossSpec, std::vector<LossError>> ResolveJobLoss(const job::v1::JobSpec& spec) {
  // Without training a group may be one sample.
  const int64_t group_size = Generates(spec) ? 2 : spec.group_size();
  return ResolveLoss(spec.loss(), {group_size, spec.prompts_per_step(), spec.staleness().max()});
}

std::vector<ConfigError> CheckLoss(const job::v1::JobSpec& spec, const KeyPlaces& places,
                                   LossSpec& loss) {
  const auto resolved = ResolveJobLoss(spec);
  std::vector<ConfigError> errors;
  if (std::holds_alternative<LossSpec>(resolved)) {
    loss = std::get<LossSpec>(resolved);
    const int64_t replayed = spec.has_replay() ? spec.replay().max_age() : 0;
    if (const auto reason = UncorrectedStaleness(loss, replayed)) {
      errors.push_back(places.At("replay", *reason));
    }
    return errors;
  }
  for (const LossError& error : std::get<std::vector<LossError>>(resolved)) {
    errors.push_back(places.At(error.field, error.message));
  }
  return errors;
}

}  // namespace freshet
