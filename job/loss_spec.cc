#include "job/loss_spec.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "absl/strings/str_join.h"
#include "base/str_cat.h"
#include "job/loss_names.h"
#include "nlohmann/json.hpp"

namespace freshet {

std::string LossNumber(double value) {
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

std::string QuoteInput(std::string_view text) {
  std::string shown;
  for (const char c : text.substr(0, 40)) {
    shown += (c >= ' ' && c <= '~') ? c : '?';
  }
  return StrCat("'", shown, text.size() > 40 ? "..." : "", "'");
}

namespace {

// A double-quoted YAML scalar, which is JSON's.
std::string QuoteYaml(const std::string& text) {
  return nlohmann::json(text).dump(-1, ' ', /*ensure_ascii=*/false,
                                   nlohmann::json::error_handler_t::replace);
}

void AppendTokenWeight(std::string* out, const TokenWeight& part) {
  *out += StrCat("{begin: ", QuoteYaml(part.begin));
  if (!part.end.empty()) *out += StrCat(", end: ", QuoteYaml(part.end));
  *out += StrCat(", weight: ", LossNumber(part.weight), "}");
}

}  // namespace

std::string DescribeLoss(const LossSpec& spec) {
  std::string out = StrCat("{advantage: ", NameOf(kAdvantages, spec.advantage));
  if (spec.credit.has_value()) {
    out += StrCat(", credit: turn, turn_discount: ", LossNumber(spec.credit->discount));
  }
  if (spec.anchor == AnchorKind::kNone) {
    out += ", anchor: none";
  } else {
    if (spec.surrogate != SurrogateKind::kPpo) {
      out += StrCat(", surrogate: ", NameOf(kSurrogates, spec.surrogate));
    }
    out += StrCat(
        ", ratio: ", NameOf(kRatios, spec.ratio), ", anchor: ", NameOf(kAnchors, spec.anchor),
        ", clip: {low: ", LossNumber(spec.clip.low), ", high: ", LossNumber(spec.clip.high));
    out += spec.clip.dual ? StrCat(", dual: ", LossNumber(*spec.clip.dual), "}") : "}";
  }
  out += StrCat(", correction: {kind: ", NameOf(kCorrections, spec.correction.kind));
  if (spec.correction.kind != CorrectionKind::kNone) {
    out += StrCat(", cap: ", LossNumber(spec.correction.cap));
    if (spec.correction.low != 0 || spec.correction.kind == CorrectionKind::kMask) {
      out += StrCat(", low: ", LossNumber(spec.correction.low));
    }
  }
  out += StrCat("}, kl: {kind: ", NameOf(kKls, spec.kl.kind));
  if (spec.kl.kind != KlKind::kNone) {
    out += StrCat(", coef: ", LossNumber(spec.kl.coef));
  }
  out += StrCat("}, aggregate: ", NameOf(kAggregates, spec.aggregate));
  if (spec.entropy_coef != 0) {
    out += StrCat(", entropy_coef: ", LossNumber(spec.entropy_coef));
  }
  if (spec.turn_entropy_share != 1) {
    out += StrCat(", turn_entropy_share: ", LossNumber(spec.turn_entropy_share));
  }
  if (spec.entropy_control) {
    out += StrCat(", entropy_control: {low: ", LossNumber(spec.entropy_control->low),
                  ", high: ", LossNumber(spec.entropy_control->high), "}");
  }
  if (!spec.token_weights.empty()) {
    out += StrCat(", token_weights: [", absl::StrJoin(spec.token_weights, ", ", AppendTokenWeight),
                  "]");
  }
  if (spec.duplicate) out += ", not_asked: duplicate";
  return out + "}";
}

}  // namespace freshet
