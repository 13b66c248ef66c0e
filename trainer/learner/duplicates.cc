#include "trainer/learner/duplicates.h"

#include <cstddef>
#include <numeric>

namespace freshet {

std::vector<int32_t> Duplicates(const TrainGroup& group) {
  std::vector<size_t> asked;
  asked.reserve(group.samples.size());
  for (size_t s = 0; s < group.samples.size(); ++s) {
    if (group.samples[s].sample.response->finish != FinishReason::kNotAsked) asked.push_back(s);
  }
  std::vector<int32_t> duplicates(group.samples.size(), 0);
  if (asked.empty()) return duplicates;
  const size_t wanted = group.samples.size() - asked.size();
  for (size_t i = 0; i < wanted; ++i) ++duplicates[asked[i % asked.size()]];
  return duplicates;
}

int64_t AddDuplicates(const std::vector<TrainGroup>& groups, TrainingRows& rows) {
  std::vector<std::vector<int32_t>> by_group;
  by_group.reserve(groups.size());
  int64_t added = 0;
  for (const TrainGroup& group : groups) {
    const std::vector<int32_t>& of_group = by_group.emplace_back(Duplicates(group));
    added += std::accumulate(of_group.begin(), of_group.end(), int64_t{0});
  }
  for (size_t tree = 0; tree < rows.trees.size(); ++tree) {
    const std::vector<int32_t>& of_group = by_group[rows.groups[tree]];
    const std::vector<size_t>& samples = rows.samples[tree];
    TrainingRows::Columns& columns = rows.columns[tree];
    for (const size_t sample : samples) columns.duplicates += of_group[sample];
    for (size_t t = 0; t < columns.loss_mask.size(); ++t) {
      const size_t sample = samples[static_cast<size_t>(columns.sequence_index[t])];
      columns.loss_mask[t] *= static_cast<float>(1 + of_group[sample]);
    }
  }
  return added;
}

}  // namespace freshet
