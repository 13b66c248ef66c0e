#include "datastore/response_check.h"

#include <cmath>
#include <cstring>
#include <limits>

#include "base/status_macros.h"
#include "base/str_cat.h"

namespace freshet {
namespace {

// ORs `fold` over all 8-byte words of a column, zero-padded at the end. Word-wise because responses
// are long and every one is checked.
template <typename T, typename Fold>
uint64_t FoldWords(const std::vector<T>& column, Fold fold) {
  const char* at = reinterpret_cast<const char*>(column.data());
  size_t left = column.size() * sizeof(T);
  uint64_t bits = 0, word = 0;
  for (; left >= sizeof(word); left -= sizeof(word), at += sizeof(word)) {
    std::memcpy(&word, at, sizeof(word));
    bits |= fold(word);
  }
  word = 0;
  if (left > 0) std::memcpy(&word, at, left);
  return bits | fold(word);
}

// Fast check that every entry is valid by itself. CheckColumns finds the invalid one.
bool EntriesAreGood(const Response& response) {
  constexpr uint64_t kSigns = 0x8000000080000000u;
  const uint64_t negative =
      FoldWords(response.response_ids, [](uint64_t two) { return two & kSigns; });
  // An all-ones exponent carries into the sign bit.
  const auto infinite_bits = [](uint64_t two) {
    return ((two & 0x7f8000007f800000u) + 0x0080000000800000u) & kSigns;
  };
  const uint64_t infinite = FoldWords(response.behavior_logprobs, infinite_bits) |
                            FoldWords(response.sampling_logprobs, infinite_bits);
  const uint64_t no_bit =
      FoldWords(response.loss_mask, [](uint64_t eight) { return eight & 0xfefefefefefefefeu; });
  return (negative | infinite | no_bit) == 0;
}

absl::Status CheckSteps(const std::vector<StepReward>& steps, int64_t tokens) {
  int32_t before = 0;
  for (const auto& [end, reward] : steps) {
    if (end <= before || end > tokens) {
      return InvalidArgument("step_rewards: end ", end, " after ", before, " of ", tokens,
                             " tokens: ends must increase");
    }
    if (!std::isfinite(reward)) {
      return InvalidArgument("step_rewards: the reward at ", end, " is not finite");
    }
    before = end;
  }
  return absl::OkStatus();
}

absl::Status CheckColumns(const Response& response, bool needs_loss) {
  const size_t n = response.response_ids.size();
  if (n == 0) return InvalidArgument("response_ids: empty: a response has at least one token");
  if (response.behavior_logprobs.size() != n) {
    return InvalidArgument("behavior_logprobs: ", response.behavior_logprobs.size(),
                           " entries for ", n, " tokens: give one per token");
  }
  const size_t sampling = response.sampling_logprobs.size();
  if (sampling != n && sampling != 0) {
    return InvalidArgument("sampling_logprobs: ", sampling, " entries for ", n,
                           " tokens: give one per token, or none");
  }
  if (response.loss_mask.size() != n) {
    return InvalidArgument("loss_mask: ", response.loss_mask.size(), " entries for ", n,
                           " tokens: give one per token");
  }
  if (response.env_reward.has_value() && !std::isfinite(*response.env_reward)) {
    return InvalidArgument("env_reward: not finite");
  }
  FRESHET_RETURN_IF_ERROR(CheckSteps(response.step_rewards, static_cast<int64_t>(n)));
  const bool good = EntriesAreGood(response);
  for (size_t t = 0; t < n && !good; ++t) {
    if (response.response_ids[t] < 0) {
      return InvalidArgument("response_ids: id ", response.response_ids[t], " at token ", t,
                             " is negative");
    }
    if (!std::isfinite(response.behavior_logprobs[t])) {
      return InvalidArgument("behavior_logprobs: the entry at token ", t, " is not finite");
    }
    if (sampling > 0 && !std::isfinite(response.sampling_logprobs[t])) {
      return InvalidArgument("sampling_logprobs: the entry at token ", t, " is not finite");
    }
    if (response.loss_mask[t] > 1) {
      return InvalidArgument("loss_mask: ", static_cast<int>(response.loss_mask[t]), " at token ",
                             t, ": use 0 or 1");
    }
  }
  if (!needs_loss) return absl::OkStatus();
  const bool bears_loss = std::memchr(response.loss_mask.data(), 1, n) != nullptr;
  const bool asked = response.finish != FinishReason::kNotAsked;
  if (asked && !bears_loss) {
    return InvalidArgument("loss_mask: no loss-bearing token among ", n,
                           ": a sample needs at least one");
  }
  if (!asked && bears_loss) {
    return InvalidArgument("loss_mask: a loss-bearing token, but the policy was not asked");
  }
  return absl::OkStatus();
}

// Requires columns that were checked.
absl::Status CheckSegments(const Response& response, bool needs_loss) {
  const std::vector<int32_t>& begins = response.segments;
  if (begins.empty()) return absl::OkStatus();
  if (!needs_loss) return InvalidArgument("segments: an unfinished response has none");
  if (begins.size() > kMaxSegments) {
    return InvalidArgument("segments: ", begins.size(), " are more than ", kMaxSegments);
  }
  const auto tokens = static_cast<int64_t>(response.response_ids.size());
  for (size_t i = 0; i < begins.size(); ++i) {
    if (i == 0 ? begins[i] != 0 : begins[i] <= begins[i - 1] || begins[i] >= tokens) {
      return InvalidArgument("segments: segment ", i, " begins at ", begins[i], " of ", tokens,
                             " tokens: the first begins at 0, and begins increase");
    }
  }
  for (const TokenRange& segment : SegmentsOf(response)) {
    if (response.loss_mask[static_cast<size_t>(segment.begin)] != 0) {
      return InvalidArgument("segments: the one at token ", segment.begin,
                             " begins with a sampled token: it needs a context");
    }
    if (CountLossTokens(response.loss_mask, segment.begin, segment.end) == 0) {
      return InvalidArgument("segments: the one at token ", segment.begin,
                             " has no loss-bearing token");
    }
  }
  return absl::OkStatus();
}

absl::Status CheckSpans(const Response& response, const ResponseBounds& bounds) {
  int64_t covered = 0;
  const Span* previous = nullptr;  // of the same segment
  auto segment = response.segments.begin();
  for (const Span& span : response.spans) {
    if (span.begin != covered || span.end <= span.begin) {
      return InvalidArgument("spans: [", span.begin, ", ", span.end, ") after ", covered,
                             " covered tokens: spans follow each other without gaps");
    }
    covered = span.end;
    if (segment != response.segments.end() && *segment == span.begin) {
      previous = nullptr;
      ++segment;
    }
    if (segment != response.segments.end() && *segment < span.end) {
      return InvalidArgument("spans: [", span.begin, ", ", span.end,
                             ") crosses the segment that begins at ", *segment);
    }
    if (previous != nullptr && span.policy.lineage < previous->policy.lineage) {
      return InvalidArgument("spans: lineage ", span.policy.lineage, " follows lineage ",
                             previous->policy.lineage, ": lineages must not decrease");
    }
    if (previous != nullptr && span.policy.version < previous->policy.version) {
      return InvalidArgument("spans: version ", span.policy.version, " follows version ",
                             previous->policy.version, ": versions must not decrease");
    }
    previous = &span;
    if (span.policy.lineage < bounds.root_lineage ||
        span.policy.lineage > bounds.committed.lineage) {
      return InvalidArgument("spans: lineage ", span.policy.lineage,
                             " is none of the store's, which are ", bounds.root_lineage, " to ",
                             bounds.committed.lineage);
    }
    if (span.policy.version > bounds.committed.version) {
      return InvalidArgument("spans: version ", span.policy.version, " is above the committed ",
                             bounds.committed.version);
    }
    if (span.policy.version < bounds.min_version) {
      return InvalidArgument("spans: version ", span.policy.version,
                             " is below its group's min version ", bounds.min_version);
    }
  }
  if (covered != static_cast<int64_t>(response.response_ids.size())) {
    return InvalidArgument("spans: cover ", covered, " of ", response.response_ids.size(),
                           " tokens: they must cover all");
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckResponse(const Response& response, const ResponseBounds& bounds) {
  FRESHET_RETURN_IF_ERROR(CheckColumns(response, bounds.needs_loss));
  FRESHET_RETURN_IF_ERROR(CheckSegments(response, bounds.needs_loss));
  return CheckSpans(response, bounds);
}

absl::Status CheckSamplePut(const SamplePut& sample, int32_t group_size) {
  if (sample.index < 0 || sample.index >= group_size) {
    return InvalidArgument("sample index ", sample.index, " is out of range: groups have ",
                           group_size, " samples");
  }
  if (sample.response == nullptr) return InvalidArgument("sample ", sample.index, ": no response");
  return absl::OkStatus();
}

absl::Status CheckRowEnd(int64_t token, RowEnd end) {
  if (end == RowEnd::kFailed || end == RowEnd::kReturned) return absl::OkStatus();
  return InvalidArgument("end of row lease ", token, ": only a failure or a return is reported");
}

absl::Status CheckScore(const Score* score) {
  if (score == nullptr) return InvalidArgument("score: absent");
  if (score->outcome == ScoreOutcome::kInfraError) {
    return InvalidArgument("score: an infrastructure error is not a score: use FailRow");
  }
  if (!std::isfinite(score->reward)) return InvalidArgument("score: reward is not finite");
  return CheckSteps(score->step_rewards, std::numeric_limits<int32_t>::max());
}

}  // namespace freshet
