#ifndef FRESHET_RUNLOG_STEP_METRICS_H_
#define FRESHET_RUNLOG_STEP_METRICS_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <variant>

#include "absl/status/statusor.h"

namespace freshet {

// One row of metrics.jsonl for a training step. Counters and seconds are per step, except
// wall_seconds (since the start of the run). Each member is written under its own name.
struct StepMetrics {
  int64_t step = 0;            // from 1; the step trains at version step - 1
  int64_t policy_version = 0;  // version that the step published
  int64_t lineage = 0;
  double reward_mean = 0;
  double reward_std = 0;
  std::map<std::string, double> reward_components;  // mean unweighted value by component
  std::map<std::string, double> task_rewards;       // mean reward by task, in jobs with tasks
  std::map<std::string, double> task_samples;       // trained samples by task
  double loss = 0;
  double grad_norm = 0;  // before clipping
  double learning_rate = 0;
  double entropy = 0;            // nats per token
  double kl_behavior = 0;        // nats per token, policy versus sampling policy
  std::optional<double> kl_ref;  // nats per token, versus the frozen reference; absent without one
  double ratio_clip_fraction = 0;
  double logprob_diff = 0;            // nats, mean absolute difference from the sampling policy
  double importance_weight_mean = 1;  // of the proximal-to-behavior correction, after truncation
  // The rules of which tokens bear how much loss.
  double sampled_entropy = 0;  // nats per token of the sampling policies, before the rules
  int64_t loss_masked_turns = 0;
  int64_t loss_masked_samples = 0;
  int64_t loss_masked_tokens = 0;
  int64_t loss_weighted_tokens = 0;
  int64_t samples_not_asked = 0;   // their policy was not asked: without loss
  int64_t samples_duplicated = 0;  // counted once more in place of one of these
  double staleness_mean = 0;       // weighted by tokens
  double staleness_p50 = 0;
  int64_t staleness_max = 0;
  std::map<int64_t, int64_t> staleness_tokens;  // age in versions -> trained tokens
  int64_t samples_replayed = 0;                 // copies of the success pool; not in staleness_*
  int64_t replay_age_max = 0;                   // in versions
  double completion_length_mean = 0;            // tokens
  double completion_length_p95 = 0;
  int64_t completion_length_max = 0;
  int64_t tokens_generated = 0;
  int64_t tokens_trained = 0;
  int64_t groups_dropped = 0;
  int64_t groups_filtered = 0;
  int64_t groups_requeued = 0;
  int64_t groups_dead = 0;
  int64_t samples_skipped = 0;      // by which leased groups were smaller than group_size
  int64_t groups_limited = 0;       // leased groups with a limit of their own for the length
  double trainer_wait_seconds = 0;  // waiting for samples
  double rollout_idle_seconds = 0;  // summed over engines
  double weight_swap_seconds = 0;
  double train_seconds = 0;      // forward, backward and optimizer
  double optimizer_seconds = 0;  // part of train_seconds
  double model_flops = 0;        // for forward and backward passes; 0: unknown
  double checkpoint_seconds = 0;
  double step_seconds = 0;  // from the previous commit to this one
  double wall_seconds = 0;
};

// One row of metrics.jsonl for an evaluation.
struct EvalMetrics {
  std::string eval_name;
  double eval_accuracy = 0;  // mean@n over scored samples; mean reward if it is not exact
  int64_t policy_version = 0;
  int64_t lineage = 0;
  int64_t rows = 0;
  int64_t samples_per_prompt = 1;          // samples of each row (n)
  int64_t eval_failed_rows = 0;            // rows without a scored sample
  int64_t eval_failed_samples = 0;         // samples without a score, excluded from all means
  std::map<int64_t, double> eval_pass_at;  // k -> pass@k
  std::map<std::string, double> reward_components;
  double completion_length_mean = 0;
  double eval_seconds = 0;
  double wall_seconds = 0;
};

// One line of metrics.jsonl without its newline: fixed key order, non-finite numbers as null,
// invalid UTF-8 replaced.
std::string ToJson(const StepMetrics& metrics);
std::string ToJson(const EvalMetrics& metrics);

// Inverse of both ToJson functions, distinguished by the key `step` or `eval_name`; monostate if a
// row has neither. Ignores unknown keys; absent keys keep their defaults; null is NaN.
// INVALID_ARGUMENT: not a JSON object, or a value of a wrong type; the message names the key.
using MetricsRow = std::variant<std::monostate, StepMetrics, EvalMetrics>;
absl::StatusOr<MetricsRow> ParseMetricsRow(std::string_view line);

}  // namespace freshet

#endif  // FRESHET_RUNLOG_STEP_METRICS_H_
