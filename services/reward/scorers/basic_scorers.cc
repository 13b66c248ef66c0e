#include "services/reward/scorers/basic_scorers.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "base/status_macros.h"
#include "base/str_cat.h"
#include "base/text_template.h"
#include "job/reward_types.h"
#include "services/reward/scorers/decimal_text.h"

namespace freshet {
namespace {

using job::v1::RewardComponent;

enum class NumberPlace { kAny, kLastHash, kBoxed, kLastNumber };

absl::StatusOr<TextTemplate> TextOption(const RewardComponent& options) {
  absl::StatusOr<TextTemplate> result =
      TextTemplate::Parse(options.has_text() ? options.text() : "{answer}");
  if (!result.ok()) return InvalidArgument("text: ", Message(result.status()));
  return result;
}

absl::StatusOr<std::string> Render(const TextTemplate& text, const ScoreInput& input) {
  absl::StatusOr<std::string> rendered = text.Render(input.attributes);
  if (!rendered.ok()) return FailedPrecondition(Message(rendered.status()), " in the row");
  return rendered;
}

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

// Whether |a - b| <= tolerance for two decimals in canonical form. The slack of 1e-12 puts 18.1
// within 0.1 of 18 although neither 18.1 nor 0.1 is exact in binary.
bool IsWithin(const std::string& a, const std::string& b, double tolerance) {
  if (tolerance <= 0) return false;
  const long double distance =
      std::fabs(std::strtold(a.c_str(), nullptr) - std::strtold(b.c_str(), nullptr));
  return distance <= static_cast<long double>(tolerance) * (1 + 1e-12L);
}

class NumericScorer final : public Scorer {
 public:
  NumericScorer(TextTemplate gold, NumberPlace place, double tolerance)
      : gold_(std::move(gold)), place_(place), tolerance_(tolerance) {}
  absl::StatusOr<ComponentScore> Score(const ScoreInput& input) const override {
    FRESHET_ASSIGN_OR_RETURN(const std::string gold_text, Render(gold_, input));
    const std::optional<std::string> gold =
        OnlyNumber(AfterLastHash(gold_text).value_or(std::string_view(gold_text)));
    if (!gold.has_value()) {
      return FailedPrecondition("the gold answer does not hold exactly one number");
    }
    const std::optional<std::string> stated = StatedNumber(input.completion, place_);
    if (!stated.has_value()) return ComponentScore{0.0, ScoreOutcome::kWrongFormat};
    const bool equal = *stated == *gold || IsWithin(*stated, *gold, tolerance_);
    return ComponentScore{equal ? 1.0 : 0.0};
  }

 private:
  const TextTemplate gold_;
  const NumberPlace place_;
  const double tolerance_;
};

class ExactMatchScorer final : public Scorer {
 public:
  ExactMatchScorer(TextTemplate expected, const RewardComponent& options)
      : expected_(std::move(expected)),
        strip_space_(!options.has_strip_space() || options.strip_space()),
        ignore_case_(options.ignore_case()) {}
  absl::StatusOr<ComponentScore> Score(const ScoreInput& input) const override {
    FRESHET_ASSIGN_OR_RETURN(const std::string expected, Render(expected_, input));
    absl::string_view left(input.completion.data(), input.completion.size());
    absl::string_view right = expected;
    if (strip_space_) {
      left = absl::StripAsciiWhitespace(left);
      right = absl::StripAsciiWhitespace(right);
    }
    const bool equal =
        ignore_case_ ? absl::AsciiStrToLower(left) == absl::AsciiStrToLower(right) : left == right;
    return ComponentScore{equal ? 1.0 : 0.0};
  }

 private:
  const TextTemplate expected_;
  const bool strip_space_;
  const bool ignore_case_;
};

class ContainsScorer final : public Scorer {
 public:
  ContainsScorer(TextTemplate text, int64_t min_count, bool ignore_case)
      : text_(std::move(text)), min_count_(min_count), ignore_case_(ignore_case) {}
  absl::StatusOr<ComponentScore> Score(const ScoreInput& input) const override {
    FRESHET_ASSIGN_OR_RETURN(std::string text, Render(text_, input));
    if (text.empty()) return FailedPrecondition("the text to look for is empty for this row");
    std::string completion(input.completion);
    if (ignore_case_) {
      absl::AsciiStrToLower(&text);
      absl::AsciiStrToLower(&completion);
    }
    int64_t count = 0;
    for (size_t at = completion.find(text); at != std::string::npos && count < min_count_;
         at = completion.find(text, at + text.size())) {
      ++count;
    }
    return ComponentScore{count >= min_count_ ? 1.0 : 0.0};
  }

 private:
  const TextTemplate text_;
  const int64_t min_count_;
  const bool ignore_case_;
};

// Share of the margin covered by `excess` tokens beyond a bound: 0 at the bound, 1 at the margin
// and beyond.
double ShareOfMargin(int64_t excess, int64_t margin) {
  if (excess <= 0) return 0.0;
  if (excess >= margin) return 1.0;
  return static_cast<double>(excess) / static_cast<double>(margin);
}

class LengthScorer final : public Scorer {
 public:
  LengthScorer(bool overlong, const RewardComponent& options)
      : overlong_(overlong),
        min_tokens_(options.min_tokens()),
        max_tokens_(options.max_tokens()),
        margin_tokens_(options.margin_tokens()) {}
  absl::StatusOr<ComponentScore> Score(const ScoreInput& input) const override {
    const int64_t tokens = input.completion_tokens;
    if (overlong_) {
      // Subtracted from 0.0, so that the score is 0 rather than -0 without punishment.
      return ComponentScore{0.0 -
                            ShareOfMargin(tokens - (max_tokens_ - margin_tokens_), margin_tokens_)};
    }
    return ComponentScore{
        1.0 - ShareOfMargin(std::max(min_tokens_ - tokens, tokens - max_tokens_), margin_tokens_)};
  }

 private:
  const bool overlong_;
  const int64_t min_tokens_;
  const int64_t max_tokens_;
  const int64_t margin_tokens_;
};

class BudgetScorer final : public Scorer {
 public:
  BudgetScorer(TextTemplate budget, std::optional<int64_t> margin_tokens)
      : budget_(std::move(budget)), margin_tokens_(margin_tokens) {}
  absl::StatusOr<ComponentScore> Score(const ScoreInput& input) const override {
    FRESHET_ASSIGN_OR_RETURN(const std::string text, Render(budget_, input));
    const std::optional<int64_t> budget = ParseTokenBudget(text);
    if (!budget.has_value()) return FailedPrecondition(BudgetError());
    return ComponentScore{
        0.0 - ShareOfMargin(input.completion_tokens - *budget, margin_tokens_.value_or(*budget))};
  }

 private:
  const TextTemplate budget_;
  const std::optional<int64_t> margin_tokens_;
};

class EnvironmentScorer final : public Scorer {
 public:
  absl::StatusOr<ComponentScore> Score(const ScoreInput& input) const override {
    if (!input.env_reward.has_value()) {
      return FailedPrecondition("the sample has no environment's reward: it was not an episode");
    }
    ComponentScore score{*input.env_reward};
    score.steps.assign(input.env_steps.begin(), input.env_steps.end());
    return score;
  }
};

}  // namespace

absl::StatusOr<std::unique_ptr<Scorer>> MakeExactMatchScorer(const RewardComponent& options) {
  FRESHET_ASSIGN_OR_RETURN(TextTemplate text, TextOption(options));
  return std::make_unique<ExactMatchScorer>(std::move(text), options);
}

absl::StatusOr<std::unique_ptr<Scorer>> MakeNumericScorer(const RewardComponent& options) {
  static constexpr std::pair<const char*, NumberPlace> kPlaces[] = {
      {"any", NumberPlace::kAny},
      {"last_hash", NumberPlace::kLastHash},
      {"boxed", NumberPlace::kBoxed},
      {"last_number", NumberPlace::kLastNumber},
  };
  FRESHET_ASSIGN_OR_RETURN(TextTemplate gold, TextOption(options));
  const double tolerance = options.tolerance();
  if (!(tolerance >= 0) || !std::isfinite(tolerance)) {
    return InvalidArgument("tolerance is ", tolerance, "; it must be finite and >= 0");
  }
  const std::string name = options.has_place() ? options.place() : "any";
  for (const auto& [place_name, place] : kPlaces) {
    if (name == place_name) {
      return std::make_unique<NumericScorer>(std::move(gold), place, tolerance);
    }
  }
  return InvalidArgument("place is '", name, "'; use any, last_hash, boxed or last_number");
}

absl::StatusOr<std::unique_ptr<Scorer>> MakeContainsScorer(const RewardComponent& options) {
  if (options.text().empty()) return InvalidArgument("text is missing; give the text to look for");
  FRESHET_ASSIGN_OR_RETURN(TextTemplate text, TextOption(options));
  const int64_t min_count = options.has_min_count() ? options.min_count() : 1;
  if (min_count < 1) return InvalidArgument("min_count is ", min_count, "; it must be at least 1");
  return std::make_unique<ContainsScorer>(std::move(text), min_count, options.ignore_case());
}

absl::StatusOr<std::unique_ptr<Scorer>> MakeLengthScorer(const RewardComponent& options) {
  const std::string shape = options.has_shape() ? options.shape() : "window";
  if (shape != "window" && shape != "soft_overlong" && shape != "budget") {
    return InvalidArgument("shape is '", shape, "'; use window, soft_overlong or budget");
  }
  const bool overlong = shape == "soft_overlong";
  const bool budget = shape == "budget";
  const auto unused = [&shape](const char* option) {
    return InvalidArgument(option, " has no effect with shape ", shape, "; leave it out");
  };
  if (shape != "window" && options.has_min_tokens()) return unused("min_tokens");
  if (budget && options.has_max_tokens()) return unused("max_tokens");
  if (!budget && options.has_text()) return unused("text");
  const int64_t margin = options.margin_tokens();
  if (margin < 0) return InvalidArgument("margin_tokens is ", margin, "; it must be >= 0");
  if (budget) {
    if (options.text().empty()) return InvalidArgument("text is missing; give the budget");
    FRESHET_ASSIGN_OR_RETURN(TextTemplate text, TextOption(options));
    return std::make_unique<BudgetScorer>(std::move(text), options.has_margin_tokens()
                                                               ? std::optional<int64_t>(margin)
                                                               : std::nullopt);
  }
  if (!options.has_max_tokens()) {
    return InvalidArgument("max_tokens is missing; give the largest length in tokens");
  }
  const int64_t min_tokens = options.min_tokens();
  const int64_t max_tokens = options.max_tokens();
  if (min_tokens < 0) return InvalidArgument("min_tokens is ", min_tokens, "; it must be >= 0");
  if (max_tokens < min_tokens) {
    return InvalidArgument("max_tokens is ", max_tokens, "; it must be >= min_tokens, ",
                           min_tokens);
  }
  if (overlong && margin > max_tokens) {
    return InvalidArgument("margin_tokens is ", margin, "; it must be <= max_tokens, ", max_tokens);
  }
  return std::make_unique<LengthScorer>(overlong, options);
}

absl::StatusOr<std::unique_ptr<Scorer>> MakeEnvironmentScorer(const RewardComponent& /*options*/) {
  return std::make_unique<EnvironmentScorer>();
}

}  // namespace freshet
