#ifndef FRESHET_ENV_WORKERS_GUESS_NUMBER_H_
#define FRESHET_ENV_WORKERS_GUESS_NUMBER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "env_workers/environment.h"

namespace freshet {

// A secret in 0..max-1, drawn from the seed. Each action is a guess in decimal digits; the answer
// is ">" when the secret is larger, "<" when it is smaller, "!" when the action is no number of the
// range, and "=" when it is found, which ends the episode. A reset shows nothing: the prompt is the
// row's.
//
// Options:
//   max      numbers to guess among, 2 to 10^9; default 10.
//   guesses  guesses allowed, 1 to 64; default: those that binary search needs at most. The last
//            one that is wrong truncates the episode.
//   reward   sparse (default): 1 when the secret is found. bits: each guess earns the share of
//            log2(max) bits by which its answer narrows the secret down, so that finding it earns 1
//            in all, and halving the rest is the best guess.
//   answers  chars (default), as above; words: "higher", "lower", "invalid" and "correct", each
//            ended by a line break.
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
  // What the answers so far leave: [begin_, end_).
  int64_t begin_ = 0;
  int64_t end_ = 0;
};

}  // namespace freshet

#endif  // FRESHET_ENV_WORKERS_GUESS_NUMBER_H_
