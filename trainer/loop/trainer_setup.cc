#include "trainer/loop/trainer_setup.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "job/eval_sets.h"
#include "job/job_kind.h"

namespace freshet {

LearningRateSchedule MakeSchedule(const job::v1::JobSpec& spec) {
  const job::v1::Optimizer& optimizer = spec.optimizer();
  LearningRateSchedule schedule;
  const absl::StatusOr<ScheduleKind> kind = ParseScheduleKind(optimizer.schedule());
  schedule.kind = kind.value_or(ScheduleKind::kConstant);
  schedule.peak = optimizer.learning_rate();
  schedule.warmup_steps = optimizer.warmup_steps();
  schedule.total_steps = spec.trainer().steps();
  if (optimizer.learning_rate() > 0) {  // 0: the job trains nothing
    schedule.final_fraction = optimizer.min_learning_rate() / optimizer.learning_rate();
  }
  return schedule;
}

std::string DeviceOfTrainer(const job::v1::JobSpec& spec) {
  if (!spec.trainer().has_device() || Generates(spec)) return "cpu";
  const std::string& device = spec.trainer().device();
  return device == "auto" && spec.trainer().ranks() > 1 ? "cpu" : device;
}

int GpuCopies(const job::v1::JobSpec& spec) {
  if (spec.weight_sync().transport() != "cuda_ipc") return 0;
  return spec.has_eval() ? 3 : 2;
}

bool SendsShards(const job::v1::JobSpec& spec) {
  const std::string& transport = spec.weight_sync().transport();
  return spec.trainer().ranks() > 1 && (transport == "nccl" || transport == "gloo");
}

PolicyLearnerOptions MakeLearnerOptions(const job::v1::JobSpec& spec, const ModelConfig& model,
                                        const LossSpec& loss, int processors) {
  PolicyLearnerOptions options;
  options.model = model;
  options.device = DeviceOfTrainer(spec);
  options.deterministic = spec.staleness().max() == 0;
  options.bf16 = spec.model().dtype() == "bf16";
  options.loss = loss;
  options.minibatches_per_step = spec.trainer().minibatches_per_step();
  options.max_tokens_per_microbatch = spec.trainer().max_tokens_per_microbatch();
  options.threads =
      spec.trainer().has_threads()
          ? static_cast<int>(spec.trainer().threads())
          : std::max(1,
                     processors / static_cast<int>(std::max<int64_t>(spec.trainer().ranks(), 1)));
  if (spec.trainer().sharding() == "optimizer") options.sharding = Sharding::kOptimizer;
  if (spec.trainer().sharding() == "full") options.sharding = Sharding::kFull;
  options.gpu_copies = GpuCopies(spec);
  options.holds_whole_state = spec.model().path().empty() || spec.warmup().has_sft();
  options.activation_checkpointing = spec.trainer().activation_checkpointing();
  options.temperature = spec.rollout().temperature();
  options.max_new_tokens = spec.rollout().max_new_tokens();
  options.whole_responses = spec.environment().type() == "openai_agent" ||
                            spec.environment().observations() == "messages";
  options.by_task = !spec.tasks().empty();
  options.schedule = MakeSchedule(spec);
  options.beta1 = spec.optimizer().beta1();
  options.beta2 = spec.optimizer().beta2();
  options.epsilon = spec.optimizer().eps();
  options.weight_decay = spec.optimizer().weight_decay();
  options.grad_clip_norm = spec.optimizer().grad_clip_norm();
  return options;
}

MemoryPlan PlanTrainer(const job::v1::JobSpec& spec, const PolicyLearnerOptions& options,
                       const BatchShape& batch) {
  if (Generates(spec)) return PlanFrozenLearner(options);
  return PlanLearner(options, batch, std::max<int64_t>(spec.trainer().ranks(), 1));
}

BatchShape LargestBatch(const job::v1::JobSpec& spec, int64_t longest_prompt) {
  const int64_t parts = std::max<int64_t>(spec.trainer().minibatches_per_step(), 1) *
                        std::max<int64_t>(spec.trainer().ranks(), 1);
  BatchShape shape;
  shape.trees = std::max<int64_t>((spec.prompts_per_step() + parts - 1) / parts, 1) *
                std::max<int64_t>(spec.environment().max_conversations(), 1);
  shape.prefix = std::max<int64_t>(longest_prompt, 1);
  shape.suffixes = spec.group_size();
  shape.suffix = spec.rollout().max_new_tokens();
  return shape;
}

Dtype CheckpointDtype(const job::v1::JobSpec& spec) {
  return spec.checkpoint().dtype() == "bf16" ? Dtype::kBf16 : Dtype::kF32;
}

TrainerLoopOptions MakeLoopOptions(const job::v1::JobSpec& spec, const std::string& job,
                                   bool has_reference) {
  TrainerLoopOptions options;
  options.job = job;
  options.steps = spec.trainer().steps();
  options.publish_every = spec.weight_sync().every_steps();
  options.checkpoint_every = spec.checkpoint().every_steps();
  options.retention.last = spec.checkpoint().keep_last();
  options.retention.every = spec.checkpoint().keep_every();
  options.retention.best = spec.checkpoint().keep_best();
  options.retention.evaluate_every = std::max<int64_t>(spec.eval().every_steps(), 1);
  options.checkpoint_dtype = CheckpointDtype(spec);
  // The reference policy is version 0.
  if (has_reference) options.retention.pinned.insert(0);
  options.seed = static_cast<uint64_t>(spec.seed());
  options.trace_ratio = spec.output().trace_ratio();
  return options;
}

std::optional<CheckpointScore> ScoreOf(const EvalMetrics& metrics, const job::v1::JobSpec& spec) {
  if (!IsFirstEvalSet(spec, metrics.eval_name) || !std::isfinite(metrics.eval_accuracy)) {
    return std::nullopt;
  }
  const int64_t version = metrics.policy_version;
  const int64_t every = spec.checkpoint().every_steps();
  CheckpointScore score;
  score.policy = {metrics.lineage, version};
  if (version == spec.trainer().steps()) {
    score.checkpoint = version;
  } else if (every > 0) {
    score.checkpoint = version - version % every;
  }
  score.eval_name = metrics.eval_name;
  score.accuracy = metrics.eval_accuracy;
  return score;
}

}  // namespace freshet
