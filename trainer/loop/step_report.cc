#include "trainer/loop/step_report.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "base/task_field.h"

namespace freshet {
namespace {

int64_t Entered(const StoreStats& now, const StoreStats& before, GroupState state) {
  const auto index = static_cast<size_t>(state);
  return now.transitions[index] - before.transitions[index];
}

void AddRewards(const std::vector<TrainGroup>& groups, StepMetrics& metrics) {
  double sum = 0, squares = 0, count = 0;
  for (const TrainGroup& group : groups) {
    for (const TrainSample& sample : group.samples) {
      const Score& score = *sample.sample.score;
      sum += score.reward;
      squares += score.reward * score.reward;
      count += 1;
      for (const auto& [name, value] : score.components) metrics.reward_components[name] += value;
    }
  }
  for (auto& [name, value] : metrics.reward_components) value /= count;
  metrics.reward_mean = sum / count;
  metrics.reward_std = std::sqrt(std::max(0.0, squares / count - std::pow(sum / count, 2)));
}

void AddTasks(const std::vector<TrainGroup>& groups, StepMetrics& metrics) {
  for (const TrainGroup& group : groups) {
    const std::string task = TaskOfRow(group.samples.front().sample.prompt->attributes);
    for (const TrainSample& sample : group.samples) {
      if (!sample.sample.replay_of.empty()) continue;
      metrics.task_rewards[task] += sample.sample.score->reward;
      metrics.task_samples[task] += 1;
    }
  }
  for (auto& [task, reward] : metrics.task_rewards) reward /= metrics.task_samples.at(task);
}

void AddAskedSamples(const std::vector<TrainGroup>& groups, StepMetrics& metrics) {
  std::vector<int64_t> lengths;
  for (const TrainGroup& group : groups) {
    for (const TrainSample& sample : group.samples) {
      const Response& response = *sample.sample.response;
      if (response.finish == FinishReason::kNotAsked) {
        ++metrics.samples_not_asked;
        continue;
      }
      lengths.push_back(static_cast<int64_t>(response.response_ids.size()));
    }
  }
  if (lengths.empty()) return;
  std::sort(lengths.begin(), lengths.end());
  double sum = 0;
  for (const int64_t length : lengths) sum += static_cast<double>(length);
  metrics.completion_length_mean = sum / static_cast<double>(lengths.size());
  metrics.completion_length_p95 = static_cast<double>(lengths[(lengths.size() - 1) * 95 / 100]);
  metrics.completion_length_max = lengths.back();
}

}  // namespace

const char* FinishName(FinishReason reason) {
  switch (reason) {
    case FinishReason::kStop:
      return "stop";
    case FinishReason::kLength:
      return "length";
    case FinishReason::kNotAsked:
      return "not_asked";
    case FinishReason::kNone:
      break;
  }
  return "none";
}

StalenessSummary SummarizeStaleness(const std::vector<TrainGroup>& groups, int64_t train_version) {
  StalenessSummary summary;
  int64_t total = 0;
  for (const TrainGroup& group : groups) {
    for (const TrainSample& sample : group.samples) {
      if (!sample.sample.replay_of.empty()) {
        ++summary.samples_replayed;
        summary.replay_age_max =
            std::max(summary.replay_age_max, train_version - sample.min_version);
        continue;
      }
      for (const Span& span : sample.sample.response->spans) {
        int64_t tokens = 0;
        for (int32_t t = span.begin; t < span.end; ++t) {
          tokens += sample.loss_mask[static_cast<size_t>(t)];
        }
        if (tokens > 0) summary.tokens[train_version - span.policy.version] += tokens;
        total += tokens;
      }
    }
  }
  int64_t below = 0;
  bool median_found = false;
  for (const auto& [age, tokens] : summary.tokens) {
    summary.mean += static_cast<double>(age * tokens) / static_cast<double>(total);
    summary.max = std::max(summary.max, age);
    below += tokens;
    if (!median_found && 2 * below >= total) {
      summary.p50 = static_cast<double>(age);
      median_found = true;
    }
  }
  return summary;
}

StepMetrics SummarizeStep(const FinishedStep& report, const StoreStats& before,
                          const StoreStats& now, bool has_reference, bool has_tasks) {
  const TrainStepResult& result = report.result;
  StepMetrics m;
  m.step = report.step;
  m.policy_version = report.policy.version;
  m.lineage = report.policy.lineage;
  AddRewards(*report.groups, m);
  if (has_tasks) AddTasks(*report.groups, m);
  AddAskedSamples(*report.groups, m);
  m.loss = result.loss;
  m.grad_norm = result.grad_norm;
  m.learning_rate = result.learning_rate;
  m.entropy = result.entropy;
  m.kl_behavior = result.kl_behavior;
  if (has_reference) m.kl_ref = result.kl_ref;
  m.ratio_clip_fraction = result.ratio_clip_fraction;
  m.importance_weight_mean = result.importance_weight_mean;
  m.logprob_diff = result.logprob_diff;
  m.sampled_entropy = result.selection.sampled_entropy;
  m.loss_masked_turns = result.selection.masked_turns;
  m.loss_masked_samples = result.selection.masked_samples;
  m.loss_masked_tokens = result.selection.masked_tokens;
  m.loss_weighted_tokens = result.selection.weighted_tokens;
  m.samples_duplicated = result.duplicated_samples;
  StalenessSummary staleness = SummarizeStaleness(*report.groups, report.step - 1);
  m.staleness_mean = staleness.mean;
  m.staleness_p50 = staleness.p50;
  m.staleness_max = staleness.max;
  m.staleness_tokens = std::move(staleness.tokens);
  m.samples_replayed = staleness.samples_replayed;
  m.replay_age_max = staleness.replay_age_max;
  m.tokens_trained = result.tokens_trained;
  m.groups_dropped = Entered(now, before, GroupState::kDropped);
  m.groups_filtered = Entered(now, before, GroupState::kFiltered);
  m.groups_requeued = Entered(now, before, GroupState::kRequeued);
  m.groups_dead = Entered(now, before, GroupState::kDead);
  m.samples_skipped = now.skipped_samples - before.skipped_samples;
  m.groups_limited = now.limited_groups - before.limited_groups;
  m.tokens_generated = now.generation.tokens - before.generation.tokens;
  m.rollout_idle_seconds = absl::ToDoubleSeconds(now.generation.idle - before.generation.idle);
  m.weight_swap_seconds = absl::ToDoubleSeconds(now.generation.swap - before.generation.swap);
  m.trainer_wait_seconds = report.wait_seconds;
  m.train_seconds = report.train_seconds;
  m.optimizer_seconds = result.optimizer_seconds;
  m.model_flops = result.model_flops;
  m.checkpoint_seconds = report.checkpoint_seconds;
  return m;
}

std::vector<SampleRow> SampleRows(
    const FinishedStep& report, int64_t most,
    const std::function<std::string(const std::vector<int32_t>&)>& decode) {
  const std::vector<std::vector<double>>& advantages = report.result.advantages;
  std::vector<SampleRow> rows;
  for (size_t g = 0; g < report.groups->size(); ++g) {
    const TrainGroup& group = (*report.groups)[g];
    for (size_t s = 0; s < group.samples.size(); ++s) {
      if (static_cast<int64_t>(rows.size()) >= most) return rows;
      const TrainSample& sample = group.samples[s];
      const Response& response = *sample.sample.response;
      SampleRow& row = rows.emplace_back();
      row.step = report.step;
      row.policy_version = report.policy.version;
      row.lineage = report.policy.lineage;
      row.uid = sample.sample.uid;
      const auto& attributes = sample.sample.prompt->attributes;
      const auto prompt = attributes.find("prompt");
      if (prompt != attributes.end()) row.prompt = prompt->second;
      row.completion = decode(CompletionIds(response));
      row.reward = sample.sample.score->reward;
      row.components = sample.sample.score->components;
      if (!advantages.empty()) row.advantage = advantages[g][s];
      row.tokens = static_cast<int64_t>(CompletionIds(response).size());
      row.spans = response.spans;
      row.segments = response.segments;
      row.finish = FinishName(response.finish);
    }
  }
  return rows;
}

}  // namespace freshet
