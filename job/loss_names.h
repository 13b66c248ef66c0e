#ifndef FRESHET_JOB_LOSS_NAMES_H_
#define FRESHET_JOB_LOSS_NAMES_H_

#include <algorithm>
#include <array>
#include <string>
#include <string_view>

#include "absl/strings/str_join.h"
#include "job/loss_spec.h"

namespace freshet {

// Names of the loss kinds in a job file, and formatting of values. Pure.

template <typename Kind>
struct LossName {
  std::string_view name;
  Kind kind;
};

inline constexpr std::array<LossName<AdvantageKind>, 5> kAdvantages{{
    {"grpo", AdvantageKind::kGrpo},
    {"dr_grpo", AdvantageKind::kDrGrpo},
    {"rloo", AdvantageKind::kRloo},
    {"reinforce_pp", AdvantageKind::kReinforcePp},
    {"reinforce_pp_baseline", AdvantageKind::kReinforcePpBaseline},
}};
inline constexpr std::array<LossName<SurrogateKind>, 2> kSurrogates{{
    {"ppo", SurrogateKind::kPpo},
    {"cispo", SurrogateKind::kCispo},
}};
inline constexpr std::array<LossName<RatioLevel>, 2> kRatios{{
    {"token", RatioLevel::kToken},
    {"sequence", RatioLevel::kSequence},
}};
inline constexpr std::array<LossName<AnchorKind>, 3> kAnchors{{
    {"proximal", AnchorKind::kProximal},
    {"behavior", AnchorKind::kBehavior},
    {"none", AnchorKind::kNone},
}};
inline constexpr std::array<LossName<CorrectionKind>, 4> kCorrections{{
    {"none", CorrectionKind::kNone},
    {"tis", CorrectionKind::kTis},
    {"mask", CorrectionKind::kMask},
    {"seq_tis", CorrectionKind::kSeqTis},
}};
inline constexpr std::array<LossName<KlKind>, 4> kKls{{
    {"none", KlKind::kNone},
    {"k1", KlKind::kK1},
    {"k2", KlKind::kK2},
    {"k3", KlKind::kK3},
}};
inline constexpr std::array<LossName<AggregateKind>, 3> kAggregates{{
    {"token_mean", AggregateKind::kTokenMean},
    {"sequence_mean", AggregateKind::kSequenceMean},
    {"sequence_sum_norm", AggregateKind::kSequenceSumNorm},
}};

template <typename Kind, size_t kSize>
std::string_view NameOf(const std::array<LossName<Kind>, kSize>& names, Kind kind) {
  const auto it = std::find_if(names.begin(), names.end(),
                               [&](const auto& entry) { return entry.kind == kind; });
  return it == names.end() ? "?" : it->name;
}

template <typename Names>
std::string JoinLossNames(const Names& names) {
  return absl::StrJoin(names, ", ",
                       [](std::string* out, const auto& entry) { out->append(entry.name); });
}

// Defaults of a correction for which only the kind is given.
constexpr CorrectionSpec DefaultCorrection(CorrectionKind kind) {
  switch (kind) {
    case CorrectionKind::kTis:
    case CorrectionKind::kSeqTis:
      return {kind, 2.0, 0.0};
    case CorrectionKind::kMask:
      return {kind, 5.0, 0.5};
    case CorrectionKind::kNone:
      break;
  }
  return {};
}

// Shortest decimal that parses back to the same double. Always has a decimal point: YAML 1.1
// readers take "3e-04" for a string.
std::string LossNumber(double value);

// User input for a message: short and on one line.
std::string QuoteInput(std::string_view text);

}  // namespace freshet

#endif  // FRESHET_JOB_LOSS_NAMES_H_
