#ifndef FRESHET_ROLLOUT_ENGINE_DRAFT_LOOKUP_H_
#define FRESHET_ROLLOUT_ENGINE_DRAFT_LOOKUP_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace freshet {

// Tokens of the longest draft.
constexpr int64_t kMaxDraftTokens = 16;

// Drafts the next tokens of a request's samples. A draft is what followed the latest occurrence of
// the sample's last 4 tokens, otherwise 3 or 2, in the prompt or in any sample of the request, also
// a finished one (Yang et al. 2023, "Inference with Reference"). Where that text ends, the draft's
// own last tokens are looked up, so that it repeats what a sample repeats.
//
// Holds the tokens, and a table of at most 256 KiB, in which occurrences displace older ones with
// the same hash. Tokens are compared, not only their hashes. Add looks at 3 places of the table,
// Propose at 3 for each token of the draft, and the constructor at 3 for each token of the prompt.
// Deterministic. Not thread-safe.
class DraftLookup {
 public:
  // Samples will have up to `max_new_tokens` tokens.
  DraftLookup(const std::vector<int32_t>& prompt, int64_t num_samples, int64_t max_new_tokens);
  // Adds the next token of a sample, numbered from 0.
  void Add(int64_t sample, int32_t token);
  // At most `most` tokens; none if nothing was found.
  std::vector<int32_t> Propose(int64_t sample, int64_t most) const;

 private:
  // The token that follows an occurrence.
  struct Place {
    int32_t text = -1;
    int32_t next = 0;
  };
  size_t Slot(const int32_t* tokens, int64_t count) const;
  // Where the last tokens of `tokens` occur; null if nowhere.
  const Place* Find(const std::vector<int32_t>& tokens) const;

  // Of each sample, after the prompt's last tokens; the last text is the prompt.
  std::vector<std::vector<int32_t>> texts_;
  std::vector<Place> places_;  // by hash; its size is a power of 2
};

// How many tokens may be drafted for a sample. After n sampled tokens, at most 4 + n / 16 +
// accepted / 2 draft tokens have been rejected.
class DraftAllowance {
 public:
  int64_t tokens() const { return sixteenths_ / 16; }
  // One token was drawn after `accepted` of `drafted` tokens.
  void Report(int64_t drafted, int64_t accepted) {
    sixteenths_ += accepted + 1 + 8 * accepted - 16 * (drafted - accepted);
    sixteenths_ = std::min(sixteenths_, 16 * kMaxDraftTokens);
  }

 private:
  int64_t sixteenths_ = 16 * 4;  // 16 * (4 + n / 16 + accepted / 2 - rejected), capped
};

}  // namespace freshet

#endif  // FRESHET_ROLLOUT_ENGINE_DRAFT_LOOKUP_H_
