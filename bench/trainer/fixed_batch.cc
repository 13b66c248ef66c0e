#include "bench/trainer/fixed_batch.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <numbers>
#include <utility>

#include "base/random.h"

namespace freshet {
namespace {

constexpr uint64_t kSeed = 17;

int32_t Token(uint64_t sequence, uint64_t position, int vocab_size) {
  return static_cast<int32_t>(RandomBits(kSeed, sequence, position) %
                              static_cast<uint64_t>(vocab_size));
}

int ResponseLength(const BatchShape& shape, uint64_t sample) {
  const double u1 = 1.0 - ToUniform(RandomBits(kSeed + 1, sample, 0));
  const double u2 = ToUniform(RandomBits(kSeed + 1, sample, 1));
  const double normal = std::sqrt(-2.0 * std::log(u1)) * std::cos(2.0 * std::numbers::pi * u2);
  return std::clamp(static_cast<int>(256 * std::exp(0.7 * normal)), shape.shortest, shape.longest);
}

void SetResponse(TrainSample& sample, std::vector<int32_t> ids, float logprob) {
  Response response;
  const size_t size = ids.size();
  response.response_ids = std::move(ids);
  response.behavior_logprobs.assign(size, logprob);
  response.loss_mask.assign(size, 1);
  response.spans = {{{0, 0}, 0, static_cast<int32_t>(size)}};
  response.finish = FinishReason::kStop;
  sample.loss_mask = response.loss_mask;
  sample.sample.response = std::make_shared<const Response>(std::move(response));
}

}  // namespace

std::vector<TrainGroup> FixedBatch(const BatchShape& shape) {
  const auto logprob = static_cast<float>(-std::log(static_cast<double>(shape.vocab_size)));
  std::vector<TrainGroup> groups;
  uint64_t sequence = 0;
  for (int g = 0; g < shape.prompts; ++g) {
    auto prompt = std::make_shared<Prompt>();
    prompt->ordinal = g;
    for (int i = 0; i < shape.prompt_tokens; ++i) {
      prompt->prompt_ids.push_back(Token(sequence, static_cast<uint64_t>(i), shape.vocab_size));
    }
    ++sequence;
    TrainGroup& group = groups.emplace_back();
    group.ordinal = g;
    for (int s = 0; s < shape.samples; ++s, ++sequence) {
      std::vector<int32_t> ids;
      for (int i = 0; i < ResponseLength(shape, sequence); ++i) {
        ids.push_back(Token(sequence, static_cast<uint64_t>(i), shape.vocab_size));
      }
      TrainSample& sample = group.samples.emplace_back();
      sample.sample.key = {g, 0, s};
      sample.sample.prompt = prompt;
      SetResponse(sample, std::move(ids), logprob);
      Score score;
      score.reward = s % 2;
      sample.sample.score = std::make_shared<const Score>(std::move(score));
    }
  }
  return groups;
}

std::vector<TrainGroup> Separated(const std::vector<TrainGroup>& groups) {
  std::vector<TrainGroup> separated;
  for (const TrainGroup& group : groups) {
    for (const TrainSample& sample : group.samples) {
      TrainGroup& single = separated.emplace_back();
      single.ordinal = static_cast<int64_t>(separated.size()) - 1;
      single.samples.push_back(sample);
    }
  }
  return separated;
}

std::vector<TrainGroup> Padded(const std::vector<TrainGroup>& groups) {
  std::vector<TrainGroup> padded = groups;
  size_t longest = 0;
  for (const TrainGroup& group : groups) {
    for (const TrainSample& sample : group.samples) {
      longest = std::max(longest, sample.sample.response->response_ids.size());
    }
  }
  for (TrainGroup& group : padded) {
    for (TrainSample& sample : group.samples) {
      std::vector<int32_t> ids = sample.sample.response->response_ids;
      const float logprob = sample.sample.response->behavior_logprobs.front();
      ids.resize(longest, ids.back());
      SetResponse(sample, std::move(ids), logprob);
    }
  }
  return padded;
}

nlohmann::json ToJson(const std::vector<TrainGroup>& groups) {
  nlohmann::json samples = nlohmann::json::array();
  for (const TrainGroup& group : groups) {
    for (const TrainSample& sample : group.samples) {
      samples.push_back({{"prompt", sample.sample.prompt->prompt_ids},
                         {"response", sample.sample.response->response_ids},
                         {"reward", sample.sample.score->reward}});
    }
  }
  return samples;
}

}  // namespace freshet
