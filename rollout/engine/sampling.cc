#include "rollout/engine/sampling.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "base/status_macros.h"
#include "base/str_cat.h"
#include "model/kernels/softmax.h"

namespace freshet {
namespace {

struct Candidate {
  int32_t id;
  double weight;  // unnormalized probability
};

double TotalWeight(const std::vector<Candidate>& candidates) {
  double total = 0;
  for (const Candidate& candidate : candidates) total += candidate.weight;
  return total;
}

// Sorts the likeliest `count` candidates to the front.
void SortFront(std::vector<Candidate>& all, size_t count) {
  const auto end = all.begin() + static_cast<std::ptrdiff_t>(std::min(count, all.size()));
  std::partial_sort(all.begin(), end, all.end(), [](const Candidate& a, const Candidate& b) {
    return a.weight != b.weight ? a.weight > b.weight : a.id < b.id;
  });
}

// The candidates left by min_p, top_k and top_p, most likely first. The likeliest has weight 1.
std::vector<Candidate> Truncate(std::vector<Candidate> all, const SamplingParams& params) {
  if (params.min_p > 0.0) {
    std::erase_if(all, [&](const Candidate& c) { return c.weight < params.min_p; });
  }
  if (params.top_k > 0 && static_cast<size_t>(params.top_k) < all.size()) {
    SortFront(all, static_cast<size_t>(params.top_k));
    all.resize(static_cast<size_t>(params.top_k));
  }
  if (params.top_p == 1.0) {
    SortFront(all, all.size());
    return all;
  }
  const double wanted = params.top_p * TotalWeight(all);
  // Few tokens usually have most of the mass.
  for (size_t sorted = 64;; sorted *= 8) {
    SortFront(all, sorted);
    double mass = 0;
    size_t keep = 0;
    while (keep < std::min(sorted, all.size()) && mass < wanted) mass += all[keep++].weight;
    if (mass < wanted && keep < all.size()) continue;
    all.resize(std::max<size_t>(keep, 1));
    return all;
  }
}

const Candidate& Draw(const std::vector<Candidate>& candidates, double total, double uniform) {
  double left = uniform * total;
  // Rounding can leave `left` positive at the end; then the last token with nonzero weight is
  // chosen.
  const Candidate* chosen = &candidates.back();
  for (const Candidate& candidate : candidates) {
    if (candidate.weight > 0) chosen = &candidate;
    if (left < candidate.weight) break;
    left -= candidate.weight;
  }
  return *chosen;
}

// The same for a whole vocabulary.
int32_t Draw(const SoftmaxWeights& softmax, double uniform) {
  double left = uniform * softmax.total;
  size_t block = 0;
  while (block + 1 < softmax.block_sums.size() && left >= softmax.block_sums[block]) {
    left -= softmax.block_sums[block++];
  }
  const size_t first = block * SoftmaxWeights::kBlock;
  const size_t end = std::min(softmax.weights.size(), first + SoftmaxWeights::kBlock);
  size_t chosen = end;
  for (size_t i = first; i < end; ++i) {
    if (softmax.weights[i] > 0) chosen = i;
    if (left < softmax.weights[i]) break;
    left -= softmax.weights[i];
  }
  // Rounding can leave `left` positive at the end of the last block, and all its weights may be 0.
  if (chosen == end) {
    do --chosen;
    while (chosen > 0 && softmax.weights[chosen] == 0);
  }
  return static_cast<int32_t>(chosen);
}

// The logits after bias, min_new_tokens and penalties.
std::vector<float> Adjust(const float* logits, int64_t vocab_size, const SamplingParams& params,
                          const TokenCounts& counts) {
  std::vector<float> adjusted(logits, logits + vocab_size);
  const auto at = [&](int32_t id) -> float& { return adjusted[static_cast<size_t>(id)]; };
  for (const auto& [id, bias] : params.logit_bias) at(id) += bias;
  if (counts.response_size < params.min_new_tokens) {
    for (const int32_t id : params.stop_ids) at(id) = -std::numeric_limits<float>::infinity();
  }
  if (!params.Penalizes()) return adjusted;
  const auto repetition = static_cast<float>(params.repetition_penalty);
  const auto penalize_repetition = [&](int32_t id) {
    at(id) = at(id) > 0 ? at(id) / repetition : at(id) * repetition;
  };
  for (const int32_t id : counts.prompt) penalize_repetition(id);
  for (const auto& [id, count] : counts.response) {
    if (!counts.prompt.contains(id)) penalize_repetition(id);
    at(id) -= static_cast<float>(params.presence_penalty + params.frequency_penalty * count);
  }
  return adjusted;
}

// The `count` likeliest tokens of softmax(logits * scale), likeliest first.
std::vector<TokenLogprob> TopLogprobs(const float* logits, int64_t vocab_size, double scale,
                                      int32_t count) {
  std::vector<int32_t> ids(static_cast<size_t>(vocab_size));
  std::iota(ids.begin(), ids.end(), 0);
  const auto end = ids.begin() + std::min<int64_t>(count, vocab_size);
  std::partial_sort(ids.begin(), end, ids.end(), [&](int32_t a, int32_t b) {
    return logits[a] != logits[b] ? logits[a] > logits[b] : a < b;
  });
  const double log_sum = LogSumExp(logits, vocab_size, scale);
  std::vector<TokenLogprob> top;
  for (auto id = ids.begin(); id != end; ++id) {
    if (std::isinf(logits[*id])) break;
    top.push_back({*id, static_cast<float>(logits[*id] * scale - log_sum)});
  }
  return top;
}

// The same of truncated candidates, which are sorted.
std::vector<TokenLogprob> TopLogprobs(const std::vector<Candidate>& candidates, double total,
                                      int32_t count) {
  std::vector<TokenLogprob> top;
  for (const Candidate& candidate : candidates) {
    if (static_cast<int32_t>(top.size()) == count || candidate.weight == 0) break;
    top.push_back({candidate.id, static_cast<float>(std::log(candidate.weight / total))});
  }
  return top;
}

absl::Status CheckRange(const char* name, double value, double min, double max) {
  if (value >= min && value <= max) return absl::OkStatus();
  return InvalidArgument(name, " ", value, " is not from ", min, " to ", max);
}

}  // namespace

absl::Status SamplingParams::Validate() const {
  if (temperature != 0.0) {
    FRESHET_RETURN_IF_ERROR(CheckRange("temperature", temperature, kMinTemperature, 1e6));
  }
  if (!(top_p > 0.0 && top_p <= 1.0)) return InvalidArgument("top_p ", top_p, " is not in (0, 1]");
  if (top_k < 0) return InvalidArgument("top_k ", top_k, " is below 0");
  if (max_new_tokens < 1) return InvalidArgument("max_new_tokens ", max_new_tokens, " is below 1");
  FRESHET_RETURN_IF_ERROR(CheckRange("min_p", min_p, 0, 1));
  FRESHET_RETURN_IF_ERROR(CheckRange("repetition_penalty", repetition_penalty, 0.01, 100));
  FRESHET_RETURN_IF_ERROR(CheckRange("presence_penalty", presence_penalty, -100, 100));
  FRESHET_RETURN_IF_ERROR(CheckRange("frequency_penalty", frequency_penalty, -100, 100));
  FRESHET_RETURN_IF_ERROR(CheckRange("min_new_tokens", min_new_tokens, 0, max_new_tokens));
  FRESHET_RETURN_IF_ERROR(CheckRange("top_logprobs", top_logprobs, 0, kMaxTopLogprobs));
  for (const auto& [id, bias] : logit_bias) {
    FRESHET_RETURN_IF_ERROR(CheckRange("logit_bias", bias, -1000, 1000));
  }
  return absl::OkStatus();
}

SampledToken SampleToken(const float* logits, int64_t vocab_size, const SamplingParams& params,
                         const TokenCounts& counts, double uniform) {
  std::vector<float> adjusted;
  const float* drawn_from = logits;
  if (params.AdjustsLogits()) {
    adjusted = Adjust(logits, vocab_size, params, counts);
    drawn_from = adjusted.data();
  }
  const float max = MaxOf(drawn_from, vocab_size);
  const double scale = params.temperature == 0.0 ? 1.0 : 1.0 / params.temperature;
  SampledToken token;
  if (params.temperature == 0.0) {
    const float* best = std::find(drawn_from, drawn_from + vocab_size - 1, max);
    token.id = static_cast<int32_t>(best - drawn_from);
    token.sampling_logprob = LogSoftmaxAt(drawn_from, vocab_size, scale, token.id);
    token.logprob = token.sampling_logprob;
  } else {
    static thread_local SoftmaxWeights softmax;  // keeps its memory
    ComputeSoftmax(drawn_from, vocab_size, max, scale, softmax);
    double total = softmax.total;
    if (params.Truncates()) {
      std::vector<Candidate> candidates;
      for (int64_t i = 0; i < vocab_size; ++i) {
        const double weight = softmax.weights[static_cast<size_t>(i)];
        if (weight > 0) candidates.push_back({static_cast<int32_t>(i), weight});
      }
      if (candidates.empty()) candidates.push_back({0, 1.0});
      candidates = Truncate(std::move(candidates), params);
      total = TotalWeight(candidates);
      token.sampling_top = TopLogprobs(candidates, total, params.top_logprobs);
      token.id = Draw(candidates, total, uniform).id;
    } else {
      token.id = Draw(softmax, uniform);
    }
    const double log_weight = (drawn_from[token.id] - max) * scale;
    token.logprob = static_cast<float>(log_weight - std::log(softmax.total));
    token.sampling_logprob = static_cast<float>(log_weight - std::log(total));
  }
  if (!adjusted.empty()) token.logprob = LogSoftmaxAt(logits, vocab_size, scale, token.id);
  if (params.top_logprobs > 0) {
    token.top = TopLogprobs(logits, vocab_size, scale, params.top_logprobs);
    if (!adjusted.empty() && !params.Truncates()) {
      token.sampling_top = TopLogprobs(drawn_from, vocab_size, scale, params.top_logprobs);
    }
  }
  return token;
}

}  // namespace freshet
