#include "services/reward/scorers/scorer_factory.h"

#include <cmath>
#include <utility>
#include <vector>

#include "base/status_macros.h"
#include "base/str_cat.h"
#include "services/reward/scorers/contains_scorer.h"
#include "services/reward/scorers/environment_scorer.h"
#include "services/reward/scorers/exact_match_scorer.h"
#include "services/reward/scorers/length_scorer.h"
#include "services/reward/scorers/numeric_scorer.h"
#include "services/reward/scorers/regex_scorer.h"

namespace freshet {
namespace {

constexpr char kTypes[] = "exact_match, numeric, contains, regex, length, grpc or environment";

absl::StatusOr<TextTemplate> ParseText(const std::string& text) {
  absl::StatusOr<TextTemplate> result = TextTemplate::Parse(text);
  if (!result.ok()) return InvalidArgument("text: ", Message(result.status()));
  return result;
}

absl::StatusOr<std::unique_ptr<Scorer>> MakeExactMatch(const ScorerOptions& options,
                                                       const RemoteScorerFactory& /*remote*/) {
  FRESHET_ASSIGN_OR_RETURN(TextTemplate text, ParseText(options.text.value_or("{answer}")));
  ExactMatchOptions match;
  match.strip_space = options.strip_space.value_or(true);
  match.ignore_case = options.ignore_case.value_or(false);
  return std::make_unique<ExactMatchScorer>(std::move(text), match);
}

absl::StatusOr<std::unique_ptr<Scorer>> MakeNumeric(const ScorerOptions& options,
                                                    const RemoteScorerFactory& /*remote*/) {
  static constexpr std::pair<const char*, NumberPlace> kPlaces[] = {
      {"any", NumberPlace::kAny},
      {"last_hash", NumberPlace::kLastHash},
      {"boxed", NumberPlace::kBoxed},
      {"last_number", NumberPlace::kLastNumber},
  };
  FRESHET_ASSIGN_OR_RETURN(TextTemplate gold, ParseText(options.text.value_or("{answer}")));
  const double tolerance = options.tolerance.value_or(0.0);
  if (!(tolerance >= 0) || !std::isfinite(tolerance)) {
    return InvalidArgument("tolerance is ", tolerance, "; it must be finite and >= 0");
  }
  const std::string name = options.place.value_or("any");
  for (const auto& [place_name, place] : kPlaces) {
    if (name == place_name) {
      return std::make_unique<NumericScorer>(std::move(gold), place, tolerance);
    }
  }
  return InvalidArgument("place is '", name, "'; use any, last_hash, boxed or last_number");
}

absl::StatusOr<std::unique_ptr<Scorer>> MakeContains(const ScorerOptions& options,
                                                     const RemoteScorerFactory& /*remote*/) {
  if (!options.text.has_value() || options.text->empty()) {
    return InvalidArgument("text is missing; give the text to look for");
  }
  FRESHET_ASSIGN_OR_RETURN(TextTemplate text, ParseText(*options.text));
  const int64_t min_count = options.min_count.value_or(1);
  if (min_count < 1) return InvalidArgument("min_count is ", min_count, "; it must be at least 1");
  return std::make_unique<ContainsScorer>(std::move(text), min_count,
                                          options.ignore_case.value_or(false));
}

absl::StatusOr<std::unique_ptr<Scorer>> MakeRegex(const ScorerOptions& options,
                                                  const RemoteScorerFactory& /*remote*/) {
  if (!options.pattern.has_value()) {
    return InvalidArgument("pattern is missing; give a regular expression");
  }
  const std::string match = options.match.value_or("search");
  if (match != "search" && match != "whole") {
    return InvalidArgument("match is '", match, "'; use search or whole");
  }
  return RegexScorer::Create(
      *options.pattern, match == "whole" ? RegexScorer::Match::kWhole : RegexScorer::Match::kSearch,
      options.ignore_case.value_or(false));
}

absl::StatusOr<std::unique_ptr<Scorer>> MakeLength(const ScorerOptions& options,
                                                   const RemoteScorerFactory& /*remote*/) {
  const std::string shape = options.shape.value_or("window");
  if (shape != "window" && shape != "soft_overlong") {
    return InvalidArgument("shape is '", shape, "'; use window or soft_overlong");
  }
  const bool overlong = shape == "soft_overlong";
  if (overlong && options.min_tokens.has_value()) {
    return InvalidArgument("min_tokens has no effect with shape soft_overlong; leave it out");
  }
  const int64_t min_tokens = options.min_tokens.value_or(0);
  const int64_t margin = options.margin_tokens.value_or(0);
  if (!options.max_tokens.has_value()) {
    return InvalidArgument("max_tokens is missing; give the largest length in tokens");
  }
  const int64_t max_tokens = *options.max_tokens;
  if (min_tokens < 0) return InvalidArgument("min_tokens is ", min_tokens, "; it must be >= 0");
  if (max_tokens < min_tokens) {
    return InvalidArgument("max_tokens is ", max_tokens, "; it must be >= min_tokens, ",
                           min_tokens);
  }
  if (margin < 0) return InvalidArgument("margin_tokens is ", margin, "; it must be >= 0");
  if (overlong && margin > max_tokens) {
    return InvalidArgument("margin_tokens is ", margin, "; it must be <= max_tokens, ", max_tokens);
  }
  return std::make_unique<LengthScorer>(
      overlong ? LengthShape::kSoftOverlong : LengthShape::kWindow, min_tokens, max_tokens, margin);
}

absl::StatusOr<std::unique_ptr<Scorer>> MakeRemote(const ScorerOptions& options,
                                                   const RemoteScorerFactory& remote) {
  if (!options.address.has_value()) {
    return InvalidArgument("address is missing; give HOST:PORT of a reward service");
  }
  const int64_t timeout_ms = options.timeout_ms.value_or(1000);
  if (timeout_ms < 1) return InvalidArgument("timeout_ms is ", timeout_ms, "; it must be >= 1");
  if (!remote) return InvalidArgument("type grpc: this process cannot ask reward services");
  return remote(*options.address, absl::Milliseconds(timeout_ms));
}

absl::StatusOr<std::unique_ptr<Scorer>> MakeEnvironment(const ScorerOptions& /*options*/,
                                                        const RemoteScorerFactory& /*remote*/) {
  return std::make_unique<EnvironmentScorer>();
}

struct ScorerType {
  const char* name;
  std::vector<std::string> used;  // option names
  absl::StatusOr<std::unique_ptr<Scorer>> (*make)(const ScorerOptions&, const RemoteScorerFactory&);
};

const std::vector<ScorerType>& ScorerTypes() {
  static const auto& types = *new std::vector<ScorerType>{
      {"exact_match", {"text", "ignore_case", "strip_space"}, MakeExactMatch},
      {"numeric", {"text", "place", "tolerance"}, MakeNumeric},
      {"contains", {"text", "min_count", "ignore_case"}, MakeContains},
      {"regex", {"pattern", "match", "ignore_case"}, MakeRegex},
      {"length", {"shape", "min_tokens", "max_tokens", "margin_tokens"}, MakeLength},
      {"grpc", {"address", "timeout_ms"}, MakeRemote},
      {"environment", {}, MakeEnvironment},
  };
  return types;
}

// Rejects options that the type would silently ignore.
absl::Status CheckUnused(const ScorerOptions& options, const ScorerType& type) {
  const std::pair<const char*, bool> given[] = {
      {"text", options.text.has_value()},
      {"min_count", options.min_count.has_value()},
      {"place", options.place.has_value()},
      {"pattern", options.pattern.has_value()},
      {"match", options.match.has_value()},
      {"shape", options.shape.has_value()},
      {"ignore_case", options.ignore_case.has_value()},
      {"strip_space", options.strip_space.has_value()},
      {"tolerance", options.tolerance.has_value()},
      {"min_tokens", options.min_tokens.has_value()},
      {"max_tokens", options.max_tokens.has_value()},
      {"margin_tokens", options.margin_tokens.has_value()},
      {"address", options.address.has_value()},
      {"timeout_ms", options.timeout_ms.has_value()},
  };
  for (const auto& [name, is_set] : given) {
    bool used = false;
    for (const std::string& known : type.used) used = used || known == name;
    if (is_set && !used) {
      return InvalidArgument(name, " has no effect with type ", type.name, "; leave it out");
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Scorer>> MakeScorer(const ScorerOptions& options,
                                                   const RemoteScorerFactory& remote) {
  for (const ScorerType& type : ScorerTypes()) {
    if (options.type != type.name) continue;
    FRESHET_RETURN_IF_ERROR(CheckUnused(options, type));
    return type.make(options, remote);
  }
  return InvalidArgument("type is '", options.type, "'; use ", kTypes);
}

absl::StatusOr<std::unique_ptr<CompositeScorer>> MakeCompositeScorer(
    const std::map<std::string, ScorerOptions>& components, const RemoteScorerFactory& remote) {
  if (components.empty()) return InvalidArgument("components is empty; name at least one scorer");
  auto result = std::make_unique<CompositeScorer>();
  for (const auto& [name, options] : components) {
    if (name.empty()) return InvalidArgument("a component has an empty name; name it");
    if (!std::isfinite(options.weight)) {
      return InvalidArgument(name, ".weight is ", options.weight, "; it must be a finite number");
    }
    absl::StatusOr<std::unique_ptr<Scorer>> scorer = MakeScorer(options, remote);
    if (!scorer.ok()) return InvalidArgument(name, ".", Message(scorer.status()));
    result->Add(name, options.weight, *std::move(scorer));
  }
  return result;
}

}  // namespace freshet
