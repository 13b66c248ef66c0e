#ifndef FRESHET_TESTS_TRAINER_LEARNER_TRAIN_GROUPS_H_
#define FRESHET_TESTS_TRAINER_LEARNER_TRAIN_GROUPS_H_

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "base/str_cat.h"
#include "datastore/trajectory_store.h"

namespace freshet {

// A trainer's sample, sampled at version {0, 0}, with all tokens loss-bearing.
inline TrainSample MakeTrainSample(const std::shared_ptr<const Prompt>& prompt, int32_t index,
                                   std::vector<int32_t> ids, std::vector<float> logprobs,
                                   double reward) {
  Response response;
  response.response_ids = std::move(ids);
  response.behavior_logprobs = std::move(logprobs);
  const size_t size = response.response_ids.size();
  response.loss_mask.assign(size, 1);
  response.spans = {{{0, 0}, 0, static_cast<int32_t>(size)}};
  response.finish = FinishReason::kStop;
  Score score;
  score.reward = reward;
  TrainSample sample;
  sample.loss_mask = response.loss_mask;
  sample.sample.key = {prompt->ordinal, 0, index};
  sample.sample.uid = StrCat("job/", prompt->ordinal, "/0/", index);
  sample.sample.prompt = prompt;
  sample.sample.response = std::make_shared<const Response>(std::move(response));
  sample.sample.score = std::make_shared<const Score>(std::move(score));
  return sample;
}

inline std::shared_ptr<const Prompt> MakePrompt(int64_t ordinal, std::vector<int32_t> ids) {
  auto prompt = std::make_shared<Prompt>();
  prompt->ordinal = ordinal;
  prompt->prompt_ids = std::move(ids);
  return prompt;
}

// Replaces the response; scores and prompt stay shared.
inline void ReplaceResponse(TrainSample& sample, Response response) {
  sample.sample.response = std::make_shared<const Response>(std::move(response));
}

// As if the policy was not asked for this sample.
inline void MakeNotAsked(TrainSample& sample) {
  Response response = *sample.sample.response;
  response.finish = FinishReason::kNotAsked;
  ReplaceResponse(sample, std::move(response));
}

}  // namespace freshet

#endif  // FRESHET_TESTS_TRAINER_LEARNER_TRAIN_GROUPS_H_
