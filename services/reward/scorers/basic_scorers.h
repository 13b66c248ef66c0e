#ifndef FRESHET_SERVICES_REWARD_SCORERS_BASIC_SCORERS_H_
#define FRESHET_SERVICES_REWARD_SCORERS_BASIC_SCORERS_H_

#include <memory>

#include "absl/status/statusor.h"
#include "freshet/job/v1/job_spec.pb.h"
#include "services/reward/scorers/scorer.h"

namespace freshet {

// Scorers without state or dependencies. INVALID_ARGUMENT as MakeScorer (scorer_factory.h).

// exact_match: 1 if the completion equals the rendered `text`, else 0. strip_space ignores ASCII
// white space at both ends of both texts; ignore_case ignores the case of ASCII letters.
absl::StatusOr<std::unique_ptr<Scorer>> MakeExactMatchScorer(
    const job::v1::RewardComponent& options);

// numeric: 1 if the completion's number differs from the gold number by at most `tolerance`, else
// 0. With tolerance 0, decimals are compared, not doubles (forms: decimal_text.h). `place`: on the
// line after the last "####" (last_hash); in the last "\\boxed{}" (boxed); the last number
// (last_number); or the first of these that is present (any). After "####" and in a box there must
// be exactly one number, so that several guesses do not count as one answer; otherwise the outcome
// is kWrongFormat. The gold number is on the line after the last "####" of the rendered `text`, or
// in the whole text without "####". FAILED_PRECONDITION unless there is exactly one.
absl::StatusOr<std::unique_ptr<Scorer>> MakeNumericScorer(const job::v1::RewardComponent& options);

// contains: 1 if the rendered `text` occurs at least `min_count` times in the completion, else 0.
// Compares bytes; ignore_case ignores the case of ASCII letters. Occurrences do not overlap.
absl::StatusOr<std::unique_ptr<Scorer>> MakeContainsScorer(const job::v1::RewardComponent& options);

// length: scores the number of response tokens.
//   window         1 within [min_tokens, max_tokens]; outside, falls linearly to 0 at a distance of
//                  margin_tokens (at once if margin_tokens is 0).
//   soft_overlong  soft overlong punishment of DAPO (arXiv:2503.14476, equation 13), with L_max =
//                  max_tokens and L_cache = margin_tokens: 0 up to L_max - L_cache, then falls
//                  linearly to -1 at L_max, and -1 beyond. min_tokens is not used.
//   budget         0 up to the number of tokens that the rendered `text` gives, then falls
//                  linearly to -1 over margin_tokens, which is the budget if absent.
//                  FAILED_PRECONDITION unless the text is a whole number from 1 to 1048576.
absl::StatusOr<std::unique_ptr<Scorer>> MakeLengthScorer(const job::v1::RewardComponent& options);

// environment: the environment's reward for the sample's episode. FAILED_PRECONDITION for a sample
// without an episode.
absl::StatusOr<std::unique_ptr<Scorer>> MakeEnvironmentScorer(
    const job::v1::RewardComponent& options);

}  // namespace freshet

#endif  // FRESHET_SERVICES_REWARD_SCORERS_BASIC_SCORERS_H_
