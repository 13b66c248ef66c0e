#include "trainer/loop/batch_stats.h"

#include "base/task_field.h"

namespace freshet {
namespace {

// Rewards are sums of products, so the last bits depend on the order of summation.
constexpr double kRounding = 1e-9;

}  // namespace

BatchStats SummarizeBatch(const std::vector<TrainGroup>& groups,
                          const std::map<std::string, double>& success_rewards) {
  BatchStats stats;
  for (const TrainGroup& group : groups) {
    const auto own =
        success_rewards.find(TaskOfRow(group.samples.front().sample.prompt->attributes));
    const double least =
        (own == success_rewards.end() ? success_rewards.at("") : own->second) - kRounding;
    size_t solved = 0;
    for (const TrainSample& sample : group.samples) {
      const Response& response = *sample.sample.response;
      const double reward = sample.sample.score->reward;
      stats.rewards.push_back(reward);
      if (response.finish != FinishReason::kNotAsked) {
        stats.completion_tokens.push_back(static_cast<double>(response.response_ids.size()));
        stats.version_spans.push_back(static_cast<double>(response.spans.size()));
      }
      solved += reward >= least ? 1 : 0;
    }
    if (solved == group.samples.size()) {
      ++stats.solved_all;
    } else {
      ++(solved == 0 ? stats.solved_none : stats.solved_some);
    }
  }
  return stats;
}

}  // namespace freshet
