#include "trainer/service/training_metrics.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <vector>

#include "job/tasks.h"
#include "trainer/loss/importance_ratio.h"

namespace freshet {
namespace {

using metrics::Buckets;
using metrics::CounterFamily;
using metrics::GaugeFamily;
using metrics::HistogramFamily;
using metrics::Labels;

constexpr const char* kPhases[] = {"wait", "compute", "optimizer", "checkpoint", "other"};
constexpr const char* kSolved[] = {"all", "some", "none"};

// Bucket edges that every job has, so that buckets of different jobs can be added.
constexpr int64_t kCommonAges[] = {0, 1, 2, 3, 4, 6, 8, 12, 16};

// The common ages, doubling ages up to the bound, bound - 1 and the bound, so that quantiles
// separate tokens at the bound from younger ones.
Buckets AgeBuckets(int64_t bound) {
  std::set<int64_t> ages(std::begin(kCommonAges), std::end(kCommonAges));
  for (int64_t age = 2 * *ages.rbegin(); age < bound; age *= 2) ages.insert(age);
  ages.insert(std::max<int64_t>(bound - 1, 0));
  ages.insert(bound);
  return {ages.begin(), ages.end()};
}

std::map<std::string, double> SuccessRewards(const job::v1::JobSpec& spec) {
  std::map<std::string, double> rewards = {{"", 0}};
  for (const std::string& task : TaskNames(spec)) rewards[task] = SuccessReward(spec, task);
  return rewards;
}

Labels With(Labels labels, const char* name, const std::string& value) {
  labels[name] = value;
  return labels;
}

}  // namespace

TrainingMetrics::TrainingMetrics(prometheus::Registry& registry, const std::string& job,
                                 const job::v1::JobSpec& spec)
    : age_edges_(AgeBuckets(spec.staleness().max())),
      kl_(GaugeFamily(
          registry, "freshet_policy_kl_nats",
          "Estimate of the KL divergence per token in the last step: of the policy from "
          "the one that sampled (behavior) or from the frozen one (reference).")),
      reward_mean_(GaugeFamily(registry, "freshet_reward_mean", "Mean reward of the last step.")),
      loss_(GaugeFamily(registry, "freshet_loss", "Loss of the last step.")),
      entropy_(GaugeFamily(registry, "freshet_policy_entropy_nats",
                           "Entropy per token of the policy in the last step.")),
      sampled_entropy_(GaugeFamily(registry, "freshet_sampled_entropy_nats",
                                   "Entropy per token of the policies that sampled the last step, "
                                   "estimated from all its samples.")),
      clip_(
          GaugeFamily(registry, "freshet_clip_ratio", "Share of clipped tokens in the last step.")),
      grad_norm_(GaugeFamily(registry, "freshet_grad_norm",
                             "Norm of the gradient before clipping in the last step.")),
      importance_(GaugeFamily(registry, "freshet_importance_weight_mean",
                              "Mean importance weight of the correction in the last step.")),
      logprob_diff_(
          GaugeFamily(registry, "freshet_logprob_diff",
                      "Mean absolute difference of a token's log-probability, in nats, between the "
                      "trained policy and the one that sampled it, in the last step.")),
      learning_rate_(
          GaugeFamily(registry, "freshet_learning_rate", "Learning rate of the last step.")),
      task_reward_(GaugeFamily(registry, "freshet_task_reward_mean",
                               "Mean reward of a task's samples in the last step.")),
      job_(job),
      staleness_bound_(spec.staleness().max()),
      success_rewards_(SuccessRewards(spec)) {
  const Labels labels = {{"job", job}};
  staleness_ = {HistogramFamily(registry, "freshet_trajectory_staleness_versions",
                                "Age of trained tokens in policy versions; one observation per "
                                "token that bears loss."),
                labels, age_edges_};
  at_bound_ = {CounterFamily(registry, "freshet_trained_tokens_at_bound_total",
                             "Trained tokens that are as old as the staleness bound allows; divide "
                             "by freshet_trajectory_staleness_versions_count for their share."),
               labels};
  replayed_ = {CounterFamily(registry, "freshet_replayed_samples_total",
                             "Trained samples that were copies from the success pool; not part of "
                             "freshet_trajectory_staleness_versions."),
               labels};
  version_spans_ = {HistogramFamily(registry, "freshet_trajectory_version_spans",
                                    "Runs of tokens by one policy version in a trained sample."),
                    labels, Buckets{1, 2, 3, 4, 6, 8}};
  completion_tokens_ = {
      HistogramFamily(registry, "freshet_completion_tokens", "Tokens of a trained sample."), labels,
      Buckets{1, 4, 16, 64, 256, 1024, 2048, 4096, 8192, 16384, 32768, 65536}};
  reward_ = {
      HistogramFamily(registry, "freshet_reward", "Reward of a trained sample."),
      With(labels, "environment", spec.has_environment() ? spec.environment().type() : "none"),
      Buckets{-10, -2, -1, -0.5, 0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1, 2, 10}};
  ratios_ = {
      HistogramFamily(
          registry, "freshet_importance_ratio",
          "Importance ratio of a trained token: its likelihood under the trained policy over that "
          "under the policy that sampled it; one observation per loss-bearing token."),
      labels, Buckets(kImportanceRatioBounds.begin(), kImportanceRatioBounds.end())};
  auto& phases = HistogramFamily(registry, "freshet_step_phase_seconds",
                                 "Seconds of the parts of a training step.");
  for (const char* phase : kPhases) {
    phases_[phase] = {phases, With(labels, "phase", phase), metrics::LongSeconds()};
  }
  auto& solved = CounterFamily(registry, "freshet_group_solved_total",
                               "Trained groups by how many of their samples got the full reward: "
                               "the sum of the positive weights.");
  for (const char* outcome : kSolved) solved_[outcome] = {solved, With(labels, "outcome", outcome)};
  if (!spec.tasks().empty()) {
    auto& samples =
        CounterFamily(registry, "freshet_task_samples_total", "Trained samples by task.");
    for (const std::string& task : TaskNames(spec)) {
      task_samples_[task] = {samples, With(labels, "task", task)};
    }
  }
  wait_ = {CounterFamily(registry, "freshet_trainer_wait_seconds_total",
                         "Seconds that the trainer waited for samples."),
           labels};
  steps_ = {CounterFamily(registry, "freshet_steps_total", "Training steps done."), labels};
  lost_ranks_ = {CounterFamily(registry, "freshet_lost_ranks_total",
                               "Times that ranks of the trainer died or hung."),
                 labels};
  ranks_ = {GaugeFamily(registry, "freshet_ranks", "Ranks that computed the last step."), labels};
  wanted_ranks_ = {GaugeFamily(registry, "freshet_wanted_ranks", "The job's trainer.ranks."),
                   labels};
  wanted_ranks_->Set(static_cast<double>(std::max<int64_t>(spec.trainer().ranks(), 1)));
  masked_turns_ = {CounterFamily(registry, "freshet_loss_masked_turns_total",
                                 "Turns without a loss because of loss.turn_entropy_share."),
                   labels};
  masked_samples_ = {CounterFamily(registry, "freshet_loss_masked_samples_total",
                                   "Samples without a loss because of loss.entropy_control."),
                     labels};
  masked_tokens_ = {CounterFamily(registry, "freshet_loss_masked_tokens_total",
                                  "Tokens of these turns and samples."),
                    labels};
  weighted_tokens_ = {CounterFamily(registry, "freshet_loss_weighted_tokens_total",
                                    "Trained tokens in a part that loss.token_weights names."),
                      labels};
  auto& not_asked =
      CounterFamily(registry, "freshet_not_asked_samples_total",
                    "Samples of trained groups whose policy was not asked; duplicated: another one "
                    "counted once more in its place.");
  dropped_samples_ = {not_asked, With(labels, "outcome", "dropped")};
  duplicated_samples_ = {not_asked, With(labels, "outcome", "duplicated")};
  trained_ = {CounterFamily(registry, "freshet_tokens_total", "Tokens by phase."),
              With(labels, "phase", "trained")};
  flops_ = {CounterFamily(registry, "freshet_model_flops_total",
                          "Floating-point operations of training's forward and backward passes."),
            labels};
  version_ = {GaugeFamily(registry, "freshet_weight_version",
                          "Policy version: committed by the trainer, or held by an engine."),
              With(labels, "role", "trainer")};
}

void TrainingMetrics::OnStep(const StepMetrics& m, const FinishedStep& report) {
  OnStep(m);
  OnBatch(SummarizeBatch(*report.groups, success_rewards_));
  lost_ranks_->Increment(static_cast<double>(report.result.lost_ranks.size()));
  ranks_->Set(static_cast<double>(report.result.ranks));
  const ImportanceRatios& ratios = report.result.importance_ratios;
  ratios_->ObserveMultiple({ratios.tokens.begin(), ratios.tokens.end()}, ratios.sum);
}

void TrainingMetrics::OnStep(const StepMetrics& m) {
  std::vector<double> increments(age_edges_.size() + 1);
  double sum = 0;
  double at_bound = 0;
  for (const auto& [age, tokens] : m.staleness_tokens) {
    const auto bucket =
        std::lower_bound(age_edges_.begin(), age_edges_.end(), static_cast<double>(age));
    increments[static_cast<size_t>(bucket - age_edges_.begin())] += static_cast<double>(tokens);
    if (age >= staleness_bound_) at_bound += static_cast<double>(tokens);
    sum += static_cast<double>(age * tokens);
  }
  staleness_->ObserveMultiple(increments, sum);
  at_bound_->Increment(at_bound);
  replayed_->Increment(static_cast<double>(m.samples_replayed));
  const double compute = std::max(0.0, m.train_seconds - m.optimizer_seconds);
  const double named =
      m.trainer_wait_seconds + compute + m.optimizer_seconds + m.checkpoint_seconds;
  phases_.at("wait")->Observe(m.trainer_wait_seconds);
  phases_.at("compute")->Observe(compute);
  phases_.at("optimizer")->Observe(m.optimizer_seconds);
  phases_.at("checkpoint")->Observe(m.checkpoint_seconds);
  phases_.at("other")->Observe(std::max(0.0, m.step_seconds - named));
  steps_->Increment();
  trained_->Increment(static_cast<double>(m.tokens_trained));
  masked_turns_->Increment(static_cast<double>(m.loss_masked_turns));
  masked_samples_->Increment(static_cast<double>(m.loss_masked_samples));
  masked_tokens_->Increment(static_cast<double>(m.loss_masked_tokens));
  weighted_tokens_->Increment(static_cast<double>(m.loss_weighted_tokens));
  dropped_samples_->Increment(static_cast<double>(m.samples_not_asked - m.samples_duplicated));
  duplicated_samples_->Increment(static_cast<double>(m.samples_duplicated));
  flops_->Increment(m.model_flops);
  version_->Set(static_cast<double>(m.policy_version));
  MutexLock lock(mu_);
  SetLast(reward_mean_, "", m.reward_mean);
  SetLast(loss_, "", m.loss);
  SetLast(entropy_, "", m.entropy);
  SetLast(sampled_entropy_, "", m.sampled_entropy);
  SetLast(kl_, "behavior", m.kl_behavior);
  if (m.kl_ref.has_value()) SetLast(kl_, "reference", *m.kl_ref);
  SetLast(clip_, "", m.ratio_clip_fraction);
  SetLast(grad_norm_, "", m.grad_norm);
  SetLast(importance_, "", m.importance_weight_mean);
  SetLast(logprob_diff_, "", m.logprob_diff);
  SetLast(learning_rate_, "", m.learning_rate);
  for (const auto& [task, reward] : m.task_rewards) SetLast(task_reward_, task, reward, "task");
  for (auto& [task, samples] : task_samples_) {
    const auto trained = m.task_samples.find(task);
    if (trained != m.task_samples.end()) samples->Increment(trained->second);
  }
  waited_ += m.trainer_wait_seconds;
  metrics::RaiseTo(*wait_, waited_);
}

void TrainingMetrics::SetLast(metrics::Gauges& family, const std::string& kind, double value,
                              const char* name) {
  const std::pair<metrics::Gauges*, std::string> key{&family, kind};
  auto found = last_.find(key);
  if (found == last_.end()) {
    Labels labels = {{"job", job_}};
    if (!kind.empty()) labels[name] = kind;
    found = last_.emplace(key, metrics::GaugeSeries(family, labels)).first;
  }
  found->second->Set(value);
}

void TrainingMetrics::OnBatch(const BatchStats& stats) {
  for (const double reward : stats.rewards) reward_->Observe(reward);
  for (const double tokens : stats.completion_tokens) completion_tokens_->Observe(tokens);
  for (const double spans : stats.version_spans) version_spans_->Observe(spans);
  solved_.at("all")->Increment(static_cast<double>(stats.solved_all));
  solved_.at("some")->Increment(static_cast<double>(stats.solved_some));
  solved_.at("none")->Increment(static_cast<double>(stats.solved_none));
}

void TrainingMetrics::OnWaiting(double seconds) {
  MutexLock lock(mu_);
  metrics::RaiseTo(*wait_, waited_ + seconds);
}

}  // namespace freshet
