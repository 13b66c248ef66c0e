#include "env_workers/guess_number.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <optional>

#include "base/random.h"
#include "base/status_macros.h"
#include "base/str_cat.h"
#include "env_workers/integer_expression.h"
#include "env_workers/option_reader.h"

namespace freshet {

std::vector<std::string> GuessNumber::OptionNames() {
  return {"max", "guesses", "reward", "answers"};
}

absl::StatusOr<EnvironmentReply> GuessNumber::Reset(uint64_t seed,
                                                    const EnvironmentOptions& options) {
  OptionReader reader(options);
  max_ = reader.Int("max", 10, 2, 1'000'000'000);
  // With three possible answers per guess, g guesses of binary search distinguish 2^g - 1 numbers.
  const auto needed = static_cast<int64_t>(std::bit_width(static_cast<uint64_t>(max_)));
  guesses_left_ = reader.Int("guesses", needed, 1, 64);
  bits_ = reader.Choice("reward", {"sparse", "bits"}) == "bits";
  words_ = reader.Choice("answers", {"chars", "words"}) == "words";
  FRESHET_RETURN_IF_ERROR(reader.status());
  secret_ = static_cast<int64_t>(Mix64(seed) % static_cast<uint64_t>(max_));
  begin_ = 0;
  end_ = max_;
  EnvironmentReply reply;
  reply.info["secret"] = StrCat(secret_);
  return reply;
}

std::string GuessNumber::Answer(const char* character, const char* word) const {
  return words_ ? StrCat(word, "\n") : std::string(character);
}

// Narrows the range to [begin, end) and returns the share of all bits gained.
double GuessNumber::Narrow(int64_t begin, int64_t end) {
  const auto before = static_cast<double>(end_ - begin_);
  begin_ = std::max(begin_, begin);
  end_ = std::min(end_, end);
  return std::log2(before / static_cast<double>(end_ - begin_)) /
         std::log2(static_cast<double>(max_));
}

absl::StatusOr<EnvironmentReply> GuessNumber::Step(std::string_view action) {
  if (guesses_left_ <= 0) return FailedPrecondition("no guess is left");
  --guesses_left_;
  EnvironmentReply reply;
  const std::optional<int64_t> guess = ParseInteger(action);
  if (!guess.has_value() || action.front() == '-' || *guess >= max_) {
    reply.observation = Answer("!", "invalid");
    reply.invalid = true;
  } else if (*guess == secret_) {
    reply.observation = Answer("=", "correct");
    const double bits = Narrow(secret_, secret_ + 1);
    reply.reward = bits_ ? bits : 1.0;
    reply.terminated = true;
  } else {
    const bool higher = secret_ > *guess;
    reply.observation = higher ? Answer(">", "higher") : Answer("<", "lower");
    const double bits = higher ? Narrow(*guess + 1, max_) : Narrow(0, *guess);
    if (bits_) reply.reward = bits;
  }
  reply.truncated = !reply.terminated && guesses_left_ == 0;
  return reply;
}

}  // namespace freshet
