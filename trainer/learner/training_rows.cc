#include "trainer/learner/training_rows.h"

#include <algorithm>
#include <map>
#include <utility>

#include "base/status_macros.h"
#include "base/str_cat.h"
#include "trainer/loss/advantage.h"

namespace freshet {
namespace {

// A tree to build: some samples of a group, and how many of their tokens are its prefix.
struct Branches {
  std::vector<size_t> samples;
  size_t shared = 0;  // leading tokens of the responses
};

// How many tokens the responses have in common before the first token with a loss; each keeps at
// least one token.
size_t SharedTokens(const TrainGroup& group, const std::vector<size_t>& samples) {
  const std::vector<int32_t>& first = group.samples[samples[0]].sample.response->response_ids;
  size_t shared = first.size() - 1;
  for (const size_t s : samples) {
    const Response& response = *group.samples[s].sample.response;
    const auto limit = std::min(shared, response.response_ids.size() - 1);
    size_t same = 0;
    while (same < limit && response.loss_mask[same] == 0 &&
           response.response_ids[same] == first[same]) {
      ++same;
    }
    shared = same;
  }
  return shared;
}

std::vector<Branches> Divide(const TrainGroup& group, bool whole_responses) {
  std::map<int32_t, Branches> by_token;
  for (size_t s = 0; s < group.samples.size(); ++s) {
    const int32_t token =
        whole_responses ? group.samples[s].sample.response->response_ids.front() : 0;
    by_token[token].samples.push_back(s);
  }
  std::vector<Branches> trees;
  for (auto& [token, branches] : by_token) {
    if (whole_responses) branches.shared = SharedTokens(group, branches.samples);
    trees.push_back(std::move(branches));
  }
  return trees;
}

}  // namespace

absl::StatusOr<TrainingRows> MakeTrainingRows(const std::vector<TrainGroup>& groups,
                                              AdvantageKind advantage, bool whole_responses) {
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
    for (const Branches& branches : Divide(groups[g], whole_responses)) {
      PackTree& tree = rows.trees.emplace_back();
      TrainingRows::Columns& columns = rows.columns.emplace_back();
      rows.groups.push_back(g);
      const auto shared = static_cast<std::ptrdiff_t>(branches.shared);
      for (const size_t s : branches.samples) {
        const TrainSample& sample = groups[g].samples[s];
        const Response& response = *sample.sample.response;
        const std::vector<int32_t>& ids = response.response_ids;
        if (!whole_responses) {
          tree.prefix = sample.sample.prompt->prompt_ids;
        } else if (shared == 0) {
          return InvalidArgument("sample ", sample.sample.uid, " begins with a sampled token");
        } else {
          tree.prefix.assign(ids.begin(), ids.begin() + shared);
        }
        tree.suffixes.emplace_back(ids.begin() + shared, ids.end());
        for (size_t t = branches.shared; t < ids.size(); ++t) {
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
  }
  return rows;
}

}  // namespace freshet
