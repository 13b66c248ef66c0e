#include "trainer/learner/microbatch_sizes.h"

#include <algorithm>

namespace freshet {
namespace {

// A microbatch of fewer tokens spends more time on calls of operations than it computes.
constexpr int64_t kLeastTokens = 256;
constexpr int64_t kMostParts = 8;
constexpr int64_t kMostGradientBytes = int64_t{1} << 30;  // of all copies

int64_t MostGradientCopies(int64_t num_parameters) {
  return kMostGradientBytes / (std::max<int64_t>(num_parameters, 1) * int64_t{sizeof(float)});
}

}  // namespace

int64_t MicrobatchTokens(const std::vector<PackTree>& trees, int64_t max_tokens,
                         int64_t num_parameters) {
  int64_t tokens = 0;
  int64_t largest = 0;
  for (const PackTree& tree : trees) {
    tokens += PackedTokens(tree);
    largest = std::max(largest, PackedTokens(tree));
  }
  return MicrobatchTokens(tokens, largest, max_tokens, num_parameters);
}

int64_t MicrobatchTokens(int64_t tokens, int64_t largest, int64_t max_tokens,
                         int64_t num_parameters) {
  if (MostGradientCopies(num_parameters) < 2) return max_tokens;
  int64_t parts = 1;
  while (parts < kMostParts && tokens / (2 * parts) >= kLeastTokens) parts *= 2;
  // Trees are not divided: with room for one more, `parts` microbatches hold them all.
  const int64_t equal = tokens / parts + (parts > 1 ? largest : 1);
  return std::min({max_tokens, equal, std::max(max_tokens / kMostParts, kLeastTokens)});
}

int MicrobatchThreads(int threads, int64_t num_parameters) {
  const int64_t most = std::min(kMostParts, MostGradientCopies(num_parameters));
  return static_cast<int>(std::clamp<int64_t>(threads, 1, std::max<int64_t>(most, 1)));
}

size_t EndOfWave(const std::vector<int64_t>& tokens, size_t first, int threads,
                 int64_t max_tokens) {
  const size_t most = std::min(tokens.size(), first + static_cast<size_t>(threads));
  int64_t sum = tokens[first];
  size_t end = first + 1;
  while (end < most && sum + tokens[end] <= max_tokens) sum += tokens[end++];
  return end;
}

}  // namespace freshet
