#ifndef FRESHET_SERVICES_REWARD_SCORERS_SCORER_FACTORY_H_
#define FRESHET_SERVICES_REWARD_SCORERS_SCORER_FACTORY_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "services/reward/scorers/composite_scorer.h"
#include "services/reward/scorers/scorer.h"

namespace freshet {

// Configuration of one reward component. Options that the type does not use must be unset.
struct ScorerOptions {
  std::string type;     // exact_match | numeric | contains | regex | length | grpc | environment
  double weight = 1.0;  // finite; may be negative or 0 (logged only)

  // exact_match: the expected text; numeric: the gold answer; both default to "{answer}". contains:
  // the text to count; required. {field} is replaced by an attribute of the row (text_template.h).
  std::optional<std::string> text;
  std::optional<int64_t> min_count;      // contains: occurrences, >= 1; default 1
  std::optional<std::string> place;      // numeric: any (default) | last_hash | boxed | last_number
  std::optional<std::string> pattern;    // regex: required
  std::optional<std::string> match;      // regex: search (default) | whole
  std::optional<std::string> shape;      // length: window (default) | soft_overlong
  std::optional<bool> ignore_case;       // exact_match, contains, regex: default false
  std::optional<bool> strip_space;       // exact_match: default true
  std::optional<double> tolerance;       // numeric: >= 0; default 0
  std::optional<int64_t> min_tokens;     // length, window: >= 0; default 0
  std::optional<int64_t> max_tokens;     // length: required, >= min_tokens
  std::optional<int64_t> margin_tokens;  // length: >= 0; default 0
  std::optional<std::string> address;    // grpc: HOST:PORT of a reward service; required
  std::optional<int64_t> timeout_ms;     // grpc: per call, >= 1; default 1000
};

// Creates the scorer of type grpc, which calls the reward service at `address`, each call within
// `timeout`. Provided by processes that can connect; opens no connection itself.
using RemoteScorerFactory = std::function<absl::StatusOr<std::unique_ptr<Scorer>>(
    const std::string& address, absl::Duration timeout)>;

// INVALID_ARGUMENT that starts with the bad option's name and gives its value and bound. Ignores
// `weight`. Without `remote`, type grpc is refused.
absl::StatusOr<std::unique_ptr<Scorer>> MakeScorer(const ScorerOptions& options,
                                                   const RemoteScorerFactory& remote = nullptr);

// One component per entry, by name. INVALID_ARGUMENT "NAME.OPTION ..." for the first bad option, or
// if there is no component.
absl::StatusOr<std::unique_ptr<CompositeScorer>> MakeCompositeScorer(
    const std::map<std::string, ScorerOptions>& components,
    const RemoteScorerFactory& remote = nullptr);

}  // namespace freshet

#endif  // FRESHET_SERVICES_REWARD_SCORERS_SCORER_FACTORY_H_
