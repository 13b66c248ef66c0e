#include "runlog/evaluation_summary.h"

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "base/log.h"
#include "base/str_cat.h"
#include "runlog/pass_at_k.h"

namespace freshet {
namespace {

constexpr double kRounding = 1e-9;

// The samples of one row.
struct RowSamples {
  int64_t scored = 0;
  int64_t correct = 0;
};

std::map<int64_t, double> MeanPassAt(const job::v1::EvalSet& set,
                                     const std::vector<RowSamples>& rows) {
  std::map<int64_t, double> pass_at;
  for (const int64_t k : set.pass_at()) {
    double sum = 0;
    int64_t count = 0;
    for (const RowSamples& row : rows) {
      if (row.scored < k) continue;
      sum += PassAtK(row.scored, row.correct, k);
      ++count;
    }
    if (count > 0) pass_at[k] = sum / static_cast<double>(count);
  }
  return pass_at;
}

}  // namespace

absl::StatusOr<EvalMetrics> SummarizeEvaluation(const job::v1::EvalSet& set,
                                                const EvaluationState& state) {
  const auto samples = static_cast<size_t>(std::max<int64_t>(set.samples_per_prompt(), 1));
  std::vector<RowSamples> rows(state.rows.size() / samples);
  EvalMetrics metrics;
  metrics.eval_name = set.name();
  metrics.policy_version = state.policy.version;
  metrics.lineage = state.policy.lineage;
  metrics.rows = std::ssize(rows);
  metrics.samples_per_prompt = static_cast<int64_t>(samples);
  std::string first_failure;
  int64_t scored = 0;
  for (size_t i = 0; i < rows.size() * samples; ++i) {
    const EvaluationRow& sample = state.rows[i];
    if (sample.score == nullptr) {
      if (metrics.eval_failed_samples++ == 0) {
        first_failure = StrCat("row ", i / samples, ": ", sample.error);
      }
      continue;
    }
    ++scored;
    RowSamples& row = rows[i / samples];
    ++row.scored;
    if (sample.score->reward >= set.pass_reward() - kRounding) ++row.correct;
    metrics.eval_accuracy += sample.score->reward;
    for (const auto& [component, value] : sample.score->components) {
      metrics.reward_components[component] += value;
    }
    metrics.completion_length_mean += static_cast<double>(sample.response_tokens);
  }
  metrics.eval_failed_rows = std::count_if(rows.begin(), rows.end(),
                                           [](const RowSamples& row) { return row.scored == 0; });
  if (metrics.eval_failed_samples > 0) {
    FRESHET_LOG(Warning) << "event=evaluation_rows_failed eval=" << set.name()
                         << " version=" << metrics.policy_version
                         << " count=" << metrics.eval_failed_samples
                         << " first=" << LogQuoted(first_failure);
  }
  if (scored == 0) {
    return FailedPrecondition("none of ", metrics.rows, " rows has a score; ", first_failure);
  }
  // Sum before dividing, so that a perfect score is exactly 1.
  const auto count = static_cast<double>(scored);
  metrics.eval_accuracy /= count;
  for (auto& [component, value] : metrics.reward_components) value /= count;
  metrics.completion_length_mean /= count;
  metrics.eval_pass_at = MeanPassAt(set, rows);
  return metrics;
}

void SetNewestEvaluation(const EvalMetrics& metrics,
                         google::protobuf::RepeatedPtrField<job::v1::Evaluation>& newest) {
  const auto found = std::find_if(newest.begin(), newest.end(), [&](const auto& evaluation) {
    return evaluation.name() == metrics.eval_name;
  });
  job::v1::Evaluation& evaluation = found == newest.end() ? *newest.Add() : *found;
  evaluation.set_name(metrics.eval_name);
  evaluation.set_policy_version(metrics.policy_version);
  evaluation.set_accuracy(metrics.eval_accuracy);
  evaluation.set_failed_samples(metrics.eval_failed_samples);
  evaluation.clear_pass_at();
  for (const auto& [k, pass] : metrics.eval_pass_at) (*evaluation.mutable_pass_at())[k] = pass;
}

}  // namespace freshet
