#include "datastore/adaptive_rollouts.h"

#include <algorithm>
#include <cmath>

#include "base/str_cat.h"
#include "base/task_field.h"

namespace freshet {
namespace {

constexpr double kMaxTokensFactor = 1000;

RolloutHistory Find(const std::map<std::string, RolloutHistory>& histories,
                    const std::string& key) {
  const auto found = histories.find(key);
  return found == histories.end() ? RolloutHistory{} : found->second;
}

}  // namespace

absl::Status AdaptiveOptions::Validate(int32_t group_size) const {
  if (min_group_size < 1 || min_group_size > group_size) {
    return InvalidArgument("adaptive.min_group_size: ", min_group_size,
                           " is out of range: use 1 to ", group_size);
  }
  if (!std::isfinite(min_reward)) {
    return InvalidArgument("adaptive.min_reward: ", min_reward, " is not finite");
  }
  if (max_tokens_factor == 0 || (max_tokens_factor >= 1 && max_tokens_factor <= kMaxTokensFactor)) {
    return absl::OkStatus();
  }
  return InvalidArgument("adaptive.max_tokens_factor: ", max_tokens_factor,
                         " is out of range: use 1 to ", kMaxTokensFactor, ", or 0 for no limit");
}

RolloutHistory WithGroup(const AdaptiveOptions& options, const RolloutHistory& history,
                         double memory, const std::vector<SampleOutcome>& samples) {
  int64_t successes = 0;
  RolloutHistory added = history;
  for (const SampleOutcome& sample : samples) {
    if (sample.reward < options.min_reward) continue;
    ++successes;
    added.longest = std::max(added.longest, sample.tokens);
  }
  added.successes = history.successes * memory + static_cast<double>(successes);
  added.samples = history.samples * memory + static_cast<double>(samples.size());
  return added;
}

RolloutDecision DecideRollouts(const AdaptiveOptions& options, int32_t group_size,
                               const RolloutHistory& row, const RolloutHistory& task) {
  const RolloutHistory& known = row.samples > 0 ? row : task;
  if (known.samples == 0) return {group_size, 0};
  RolloutDecision decision{group_size, 0};
  const double success = known.successes / known.samples;
  if (success > 0.5) {
    const double rest = group_size - options.min_group_size;
    decision.samples = options.min_group_size +
                       static_cast<int32_t>(std::ceil(rest * (4 * success * (1 - success))));
  }
  decision.max_new_tokens = static_cast<int64_t>(
      std::ceil(options.max_tokens_factor * static_cast<double>(known.longest)));
  return decision;
}

void RolloutHistories::Add(const AdaptiveOptions& options, const Prompt& prompt,
                           const std::string& prompt_key,
                           const std::vector<SampleOutcome>& samples) {
  const auto add = [&](RolloutHistory& history, double memory) {
    history = WithGroup(options, history, memory, samples);
  };
  add(tasks_[TaskOfRow(prompt.attributes)], kTaskMemory);
  if (rows_.contains(prompt_key) || rows_.size() + tasks_.size() < kMaxHistories) {
    add(rows_[prompt_key], kRowMemory);
  }
}

RolloutDecision RolloutHistories::Decide(const AdaptiveOptions& options, int32_t group_size,
                                         const Prompt& prompt,
                                         const std::string& prompt_key) const {
  return DecideRollouts(options, group_size, Find(rows_, prompt_key),
                        Find(tasks_, TaskOfRow(prompt.attributes)));
}

}  // namespace freshet
