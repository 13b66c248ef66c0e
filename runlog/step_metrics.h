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

// One row of metrics.jsonl about a training step. Counters and seconds are per step, except
// wall_seconds (since the start of the run). Each member is written under its own name.
struct StepMetrics {
  int64_t step = 0;            // from 1; trains at version step - 1
  int64_t policy_version = 0;  // the version that the step published
  int64_t lineage = 0;
  double reward_mean = 0;
  double reward_std = 0;
  std::map<std::string, double> reward_components;  // mean unweighted value by component
  double loss = 0;
  double grad_norm = 0;  // before clipping
  double learning_rate = 0;
  double entropy = 0;            // nats per token
  double kl_behavior = 0;        // nats per token, policy against the one that sampled
  std::optional<double> kl_ref;  // nats per token, against the frozen reference; absent without one
  double ratio_clip_fraction = 0;
  double logprob_diff = 0;            // nats, mean size of the difference to the one that sampled
  double importance_weight_mean = 1;  // of the proximal-to-behaviour correction, after truncation
  double staleness_mean = 0;          // token weighted
  double staleness_p50 = 0;
  int64_t staleness_max = 0;
  std::map<int64_t, int64_t> staleness_tokens;  // trained tokens by their age in versions
  double completion_length_mean = 0;            // tokens
  double completion_length_p95 = 0;
  int64_t completion_length_max = 0;
  int64_t tokens_generated = 0;
  int64_t tokens_trained = 0;
  int64_t groups_dropped = 0;
  int64_t groups_filtered = 0;
  int64_t groups_requeued = 0;
  int64_t groups_dead = 0;
  double trainer_wait_seconds = 0;  // waiting for samples
  double rollout_idle_seconds = 0;  // summed over engines
  double weight_swap_seconds = 0;
  double train_seconds = 0;      // forward, backward and optimizer
  double optimizer_seconds = 0;  // part of train_seconds
  double model_flops = 0;        // operations that forward and backward passes needed; 0: not known
  double checkpoint_seconds = 0;
  double step_seconds = 0;  // from the previous commit to this one
  double wall_seconds = 0;
};

// One row of metrics.jsonl about an evaluation.
struct EvalMetrics {
  std::string eval_name;
  double eval_accuracy = 0;  // over the scored rows; mean reward where the reward is not exact
  int64_t policy_version = 0;
  int64_t lineage = 0;
  int64_t rows = 0;
  int64_t eval_failed_rows = 0;  // of these, those without a score: they count in no mean
  std::map<std::string, double> reward_components;
  double completion_length_mean = 0;
  double eval_seconds = 0;
  double wall_seconds = 0;
};

// One line of metrics.jsonl without its newline; keys in a fixed order; a non-finite number is
// null; text that is not UTF-8 is replaced.
std::string ToJson(const StepMetrics& metrics);
std::string ToJson(const EvalMetrics& metrics);

// Inverse of both, told apart by the key `step` or `eval_name`; a row with neither is monostate.
// Unknown keys are ignored, absent ones keep their defaults, null is NaN.
// INVALID_ARGUMENT (naming the key) for text that is no JSON object or a value of a wrong type.
using MetricsRow = std::variant<std::monostate, StepMetrics, EvalMetrics>;
absl::StatusOr<MetricsRow> ParseMetricsRow(std::string_view line);

}  // namespace freshet

#endif  // FRESHET_RUNLOG_STEP_METRICS_H_
