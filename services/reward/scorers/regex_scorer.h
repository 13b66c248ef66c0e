#ifndef FRESHET_SERVICES_REWARD_SCORERS_REGEX_SCORER_H_
#define FRESHET_SERVICES_REWARD_SCORERS_REGEX_SCORER_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "services/reward/scorers/scorer.h"

namespace freshet {

// 1 if the completion matches a Perl-compatible regular expression, else 0. The pattern works on
// UTF-8 characters; invalid UTF-8 matches nothing.
//
// Work is bounded: a match that backtracks too often, needs too much memory or exceeds the input's
// timeout fails with DEADLINE_EXCEEDED. Thread-safe.
class RegexScorer final : public Scorer {
 public:
  enum class Match {
    kSearch,  // anywhere in the completion
    kWhole,   // the whole completion, including white space at its ends
  };

  // INVALID_ARGUMENT with the offset and PCRE2's reason if `pattern` does not compile, is empty, or
  // is longer than 64 KiB.
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
