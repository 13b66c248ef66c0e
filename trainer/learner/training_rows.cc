#include "trainer/learner/training_rows.h"

#include "base/status_macros.h"
#include "base/str_cat.h"
#include "trainer/loss/advantage.h"

namespace freshet {

absl::StatusOr<TrainingRows> MakeTrainingRows(const std::vector<TrainGroup>& groups,
                                              AdvantageKind advantage) {
  std::vector<std::vector<double>> rewards;
  for (const TrainGroup& group : groups) {
    std::vector<double>& group_rewards = rewards.emplace_back();
    for (const TrainSample& sample : group.samples) {
      if (sample.sample.score == nullptr) {
        return InvalidArgument("sample ", sample.sample.uid, " has no score");
      }
      group_rewards.push_back(sample.sample.score->reward);
    }
  }
  TrainingRows rows;
  FRESHET_ASSIGN_OR_RETURN(rows.advantages, ComputeAdvantages(advantage, rewards));
  for (size_t g = 0; g < groups.size(); ++g) {
    PackTree& tree = rows.trees.emplace_back();
    TrainingRows::Columns& columns = rows.columns.emplace_back();
    tree.prefix = groups[g].samples.front().sample.prompt->prompt_ids;
    for (size_t s = 0; s < groups[g].samples.size(); ++s) {
      const TrainSample& sample = groups[g].samples[s];
      const Response& response = *sample.sample.response;
      tree.suffixes.push_back(response.response_ids);
      for (size_t t = 0; t < response.response_ids.size(); ++t) {
        columns.behavior_logprobs.push_back(response.behavior_logprobs[t]);
        columns.loss_mask.push_back(sample.loss_mask[t] != 0 ? 1.0F : 0.0F);
        columns.advantages.push_back(static_cast<float>(rows.advantages[g][s]));
        columns.sequence_index.push_back(columns.num_sequences);
        rows.loss_tokens += sample.loss_mask[t] != 0 ? 1 : 0;
      }
      ++columns.num_sequences;
      ++rows.num_sequences;
    }
  }
  return rows;
}

}  // namespace freshet
