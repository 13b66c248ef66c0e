#ifndef FRESHET_ENV_WORKERS_GUESS_NUMBER_H_
#define FRESHET_ENV_WORKERS_GUESS_NUMBER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "env_workers/environment.h"

namespace freshet {

// Guess a secret in 0..max-1, derived from the seed. Each action is a guess in decimal digits. The
// answer is ">" if the secret is larger, "<" if it is smaller, "!" if the action is not a number in
// range, and "=" if it is correct, which ends the episode. A reset shows nothing: the prompt is the
// row's.
//
// Options:
//   max      size of the range, 2 to 10^9; default 10.
//   guesses  guesses allowed, 1 to 64; default: the maximum that binary search needs. The last
//            guess, if wrong, truncates the episode.
//   reward   sparse (default): 1 for finding the secret. bits: each guess earns the share of
//            log2(max) bits of information that its answer gives. Finding the secret earns 1 in
//            total, and halving the range is the best guess.
//   answers  chars (default), as above; words: "higher", "lower", "invalid" and "correct", each
//            followed by a line break.
class GuessNumber final : public Environment {
 public:
  static std::vector<std::string> OptionNames();

  absl::StatusOr<EnvironmentReply> Reset(uint64_t seed, const EnvironmentOptions& options) override;
  absl::StatusOr<EnvironmentReply> Step(std::string_view action) override;

 private:
  double Narrow(int64_t begin, int64_t end);
  std::string Answer(const char* character, const char* word) const;

  int64_t max_ = 0;
  int64_t guesses_left_ = 0;
  bool bits_ = false;
  bool words_ = false;
  int64_t secret_ = 0;
  // Remaining range: [begin_, end_).
  int64_t begin_ = 0;
  int64_t end_ = 0;
};

}  // namespace freshet

#endif  // FRESHET_ENV_WORKERS_GUESS_NUMBER_H_
