#include "services/reward/scorers/numeric_scorer.h"

#include <cmath>
#include <cstdlib>
#include <optional>
#include <string>
#include <vector>

#include "base/str_cat.h"
#include "services/reward/scorers/decimal_text.h"

namespace freshet {
namespace {

constexpr std::string_view kHash = "####";
constexpr std::string_view kBox = "\\boxed{";

std::optional<std::string> OnlyNumber(std::string_view text) {
  std::vector<std::string> numbers = FindDecimals(text);
  if (numbers.size() != 1) return std::nullopt;
  return std::move(numbers.front());
}

// Rest of the line after the last "####"; nullopt if there is none.
std::optional<std::string_view> AfterLastHash(std::string_view text) {
  const size_t at = text.rfind(kHash);
  if (at == std::string_view::npos) return std::nullopt;
  text.remove_prefix(at + kHash.size());
  return text.substr(0, text.find('\n'));
}

// Contents of the last box with balanced braces; nullopt if there is none.
std::optional<std::string_view> LastBox(std::string_view text) {
  const size_t at = text.rfind(kBox);
  if (at == std::string_view::npos) return std::nullopt;
  text.remove_prefix(at + kBox.size());
  int64_t depth = 1;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '{') ++depth;
    if (text[i] == '}' && --depth == 0) return text.substr(0, i);
  }
  return std::nullopt;
}

std::optional<std::string> StatedNumber(std::string_view text, NumberPlace place) {
  if (place == NumberPlace::kAny || place == NumberPlace::kLastHash) {
    const std::optional<std::string_view> line = AfterLastHash(text);
    if (line.has_value()) return OnlyNumber(*line);
    if (place == NumberPlace::kLastHash) return std::nullopt;
  }
  if (place == NumberPlace::kAny || place == NumberPlace::kBoxed) {
    const std::optional<std::string_view> box = LastBox(text);
    if (box.has_value()) return OnlyNumber(*box);
    if (place == NumberPlace::kBoxed) return std::nullopt;
  }
  std::vector<std::string> numbers = FindDecimals(text);
  if (numbers.empty()) return std::nullopt;
  return std::move(numbers.back());
}

// a - b| <= tolerance for two decimals in canonical form. The slack of 1e-12 puts 18.1 within 0.1
// of 18 although neither 18.1 nor 0.1 is exact in binary.
bool IsWithin(const std::string& a, const std::string& b, double tolerance) {
  if (tolerance <= 0) return false;
  const long double distance =
      std::fabs(std::strtold(a.c_str(), nullptr) - std::strtold(b.c_str(), nullptr));
  return distance <= static_cast<long double>(tolerance) * (1 + 1e-12L);
}

}  // namespace

absl::StatusOr<ComponentScore> NumericScorer::Score(const ScoreInput& input) const {
  const absl::StatusOr<std::string> gold_text = gold_.Render(input.attributes);
  if (!gold_text.ok()) return FailedPrecondition(Message(gold_text.status()), " in the row");
  const std::optional<std::string> gold =
      OnlyNumber(AfterLastHash(*gold_text).value_or(std::string_view(*gold_text)));
  if (!gold.has_value()) {
    return FailedPrecondition("the gold answer does not hold exactly one number");
  }
  const std::optional<std::string> stated = StatedNumber(input.completion, place_);
  if (!stated.has_value()) return ComponentScore{0.0, ScoreOutcome::kWrongFormat};
  const bool equal = *stated == *gold || IsWithin(*stated, *gold, tolerance_);
  return ComponentScore{equal ? 1.0 : 0.0};
}

}  // namespace freshet
