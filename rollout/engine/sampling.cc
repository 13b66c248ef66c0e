#include "rollout/engine/sampling.h"

#include <algorithm>
#include <cmath>

#include "base/str_cat.h"

namespace freshet {
namespace {

struct Candidate {
  int32_t id;
  double weight;  // unnormalized probability
};

double LogSumExp(const float* logits, int64_t size, double scale, float max) {
  double sum = 0;
  for (int64_t i = 0; i < size; ++i) sum += std::exp((logits[i] - max) * scale);
  return max * scale + std::log(sum);
}

double TotalWeight(const std::vector<Candidate>& candidates) {
  double total = 0;
  for (const Candidate& candidate : candidates) total += candidate.weight;
  return total;
}

// The candidates left by top_k and top_p, most likely first.
std::vector<Candidate> Truncate(std::vector<Candidate> all, const SamplingParams& params) {
  std::sort(all.begin(), all.end(), [](const Candidate& a, const Candidate& b) {
    return a.weight != b.weight ? a.weight > b.weight : a.id < b.id;
  });
  if (params.top_k > 0 && static_cast<size_t>(params.top_k) < all.size()) {
    all.resize(static_cast<size_t>(params.top_k));
  }
  if (params.top_p < 1.0) {
    const double total = TotalWeight(all);
    double mass = 0;
    size_t keep = 0;
    while (keep < all.size() && mass < params.top_p * total) mass += all[keep++].weight;
    all.resize(std::max<size_t>(keep, 1));
  }
  return all;
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

}  // namespace

absl::Status SamplingParams::Validate() const {
  if (!(temperature >= 0.0) || !std::isfinite(temperature)) {
    return InvalidArgument("temperature ", temperature, " is below 0 or not finite");
  }
  if (!(top_p > 0.0 && top_p <= 1.0)) return InvalidArgument("top_p ", top_p, " is not in (0, 1]");
  if (top_k < 0) return InvalidArgument("top_k ", top_k, " is below 0");
  if (max_new_tokens < 1) return InvalidArgument("max_new_tokens ", max_new_tokens, " is below 1");
  return absl::OkStatus();
}

SampledToken SampleToken(const float* logits, int64_t vocab_size, const SamplingParams& params,
                         double uniform) {
  const float* best = std::max_element(logits, logits + vocab_size);
  if (params.temperature == 0.0) {
    const auto logprob = static_cast<float>(*best - LogSumExp(logits, vocab_size, 1.0, *best));
    return {static_cast<int32_t>(best - logits), logprob, logprob};
  }
  const double scale = 1.0 / params.temperature;
  std::vector<Candidate> candidates(static_cast<size_t>(vocab_size));
  for (int64_t i = 0; i < vocab_size; ++i) {
    candidates[static_cast<size_t>(i)] = {static_cast<int32_t>(i),
                                          std::exp((logits[i] - *best) * scale)};
  }
  const double whole = TotalWeight(candidates);
  double total = whole;
  if (params.Truncates()) {
    candidates = Truncate(std::move(candidates), params);
    total = TotalWeight(candidates);
  }
  const Candidate& drawn = Draw(candidates, total, uniform);
  return {drawn.id, static_cast<float>(std::log(drawn.weight / whole)),
          static_cast<float>(std::log(drawn.weight / total))};
}

}  // namespace freshet
