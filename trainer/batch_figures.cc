#include "trainer/batch_figures.h"

namespace freshet {
namespace {

// Rewards are sums of products: the last bits of full marks depend on the order.
constexpr double kRounding = 1e-9;

}  // namespace

BatchFigures SummarizeBatch(const std::vector<TrainGroup>& groups, double full_marks) {
  BatchFigures figures;
  for (const TrainGroup& group : groups) {
    size_t solved = 0;
    for (const TrainSample& sample : group.samples) {
      const Response& response = *sample.sample.response;
      const double reward = sample.sample.score->reward;
      figures.rewards.push_back(reward);
      figures.completion_tokens.push_back(static_cast<double>(response.response_ids.size()));
      figures.version_spans.push_back(static_cast<double>(response.spans.size()));
      solved += reward >= full_marks - kRounding ? 1 : 0;
    }
    if (solved == group.samples.size()) {
      ++figures.solved_all;
    } else {
      ++(solved == 0 ? figures.solved_none : figures.solved_some);
    }
  }
  return figures;
}

}  // namespace freshet
