#include "runlog/evaluation_summary.h"

#include "base/log.h"
#include "base/str_cat.h"

namespace freshet {

absl::StatusOr<EvalMetrics> SummarizeEvaluation(const std::string& name,
                                                const EvaluationState& state) {
  EvalMetrics metrics;
  metrics.eval_name = name;
  metrics.policy_version = state.policy.version;
  metrics.lineage = state.policy.lineage;
  metrics.rows = std::ssize(state.rows);
  std::string first_failure;
  for (size_t i = 0; i < state.rows.size(); ++i) {
    const EvaluationRow& row = state.rows[i];
    if (row.score == nullptr) {
      if (metrics.eval_failed_rows++ == 0) first_failure = StrCat("row ", i, ": ", row.error);
      continue;
    }
    metrics.eval_accuracy += row.score->reward;
    for (const auto& [component, value] : row.score->components) {
      metrics.reward_components[component] += value;
    }
    metrics.completion_length_mean += static_cast<double>(row.response_tokens);
  }
  if (metrics.eval_failed_rows > 0) {
    FRESHET_LOG(Warning) << "event=evaluation_rows_failed version=" << metrics.policy_version
                         << " count=" << metrics.eval_failed_rows
                         << " first=" << LogQuoted(first_failure);
  }
  const int64_t scored = metrics.rows - metrics.eval_failed_rows;
  if (scored == 0) {
    return FailedPrecondition("none of ", metrics.rows, " rows has a score; ", first_failure);
  }
  // Sum before dividing, so that a perfect score is exactly 1.
  const auto count = static_cast<double>(scored);
  metrics.eval_accuracy /= count;
  for (auto& [component, value] : metrics.reward_components) value /= count;
  metrics.completion_length_mean /= count;
  return metrics;
}

}  // namespace freshet
