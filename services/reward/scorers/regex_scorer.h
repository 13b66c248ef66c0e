#ifndef FRESHET_SERVICES_REWARD_SCORERS_REGEX_SCORER_H_
#define FRESHET_SERVICES_REWARD_SCORERS_REGEX_SCORER_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "services/reward/scorers/scorer.h"

namespace freshet {

// 1 when the completion matches a Perl-compatible regular expression, else 0. The pattern works on
// UTF-8 characters; bytes of the completion that are not UTF-8 match nothing.
//
// Work is bounded: a match that backtracks too often, needs too much memory, or takes longer than
// the input's timeout ends as DEADLINE_EXCEEDED. Thread-safe.
class RegexScorer final : public Scorer {
 public:
  enum class Match {
    kSearch,  // anywhere in the completion
    kWhole,   // the whole completion, white space at its ends included
  };

  // INVALID_ARGUMENT with the offset and PCRE2's reason when `pattern` does not compile, is empty,
  // or is longer than 64 KiB.
  static absl::StatusOr<std::unique_ptr<RegexScorer>> Create(const std::string& pattern,
                                                             Match match, bool ignore_case);
  ~RegexScorer() override;

  absl::StatusOr<ComponentScore> Score(const ScoreInput& input) const override;

 private:
  struct Program;
  explicit RegexScorer(std::unique_ptr<const Program> program);

  const std::unique_ptr<const Program> program_;
};

}  // namespace freshet

#endif  // FRESHET_SERVICES_REWARD_SCORERS_REGEX_SCORER_H_
