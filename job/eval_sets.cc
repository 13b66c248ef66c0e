#include "job/eval_sets.h"

#include <algorithm>
#include <utility>

#include "base/str_cat.h"
#include "job/tasks.h"

namespace freshet {
namespace {

using job::v1::Eval;
using job::v1::EvalSet;
using job::v1::JobSpec;

int64_t Samples(const Eval& eval) {
  return eval.has_samples_per_prompt() ? eval.samples_per_prompt() : 1;
}

void Fill(const JobSpec& spec, EvalSet& set) {
  const Eval& eval = spec.eval();
  if (!set.has_rows()) set.set_rows(eval.rows());
  if (!set.has_samples_per_prompt()) set.set_samples_per_prompt(Samples(eval));
  if (set.pass_at().empty()) {
    for (const int64_t k : eval.pass_at()) {
      if (k <= set.samples_per_prompt()) set.add_pass_at(k);
    }
  }
  if (!set.has_pass_reward()) set.set_pass_reward(eval.has_pass_reward() ? eval.pass_reward() : 1);
  if (!set.has_temperature()) {
    set.set_temperature(eval.has_temperature()         ? eval.temperature()
                        : set.samples_per_prompt() > 1 ? spec.rollout().temperature()
                                                       : 0);
  }
  if (!set.has_top_p()) set.set_top_p(eval.has_top_p() ? eval.top_p() : 1);
  if (!set.has_top_k()) set.set_top_k(eval.top_k());
  if (!set.has_min_p()) set.set_min_p(eval.has_min_p() ? eval.min_p() : spec.rollout().min_p());
  if (!set.has_max_new_tokens()) {
    set.set_max_new_tokens(eval.has_max_new_tokens() ? eval.max_new_tokens()
                                                     : spec.rollout().max_new_tokens());
  }
}

}  // namespace

std::vector<EvalSet> EvalSets(const JobSpec& spec) {
  std::vector<EvalSet> sets(spec.eval().sets().begin(), spec.eval().sets().end());
  if (sets.empty() && spec.has_eval()) {
    for (const std::string& task : TaskNames(spec)) {
      EvalSet& set = sets.emplace_back();
      if (task.empty()) {
        set.set_name(spec.eval().has_name() ? spec.eval().name() : "heldout");
      } else {
        set.set_name(task);
        set.set_task(task);
      }
      // An invalid k must not be dropped.
      *set.mutable_pass_at() = spec.eval().pass_at();
    }
  }
  for (EvalSet& set : sets) Fill(spec, set);
  return sets;
}

absl::StatusOr<EvalSet> FindEvalSet(const JobSpec& spec, std::string_view name) {
  for (EvalSet& set : EvalSets(spec)) {
    if (name.empty() || set.name() == name) return std::move(set);
  }
  return NotFound("the job has no evaluation set ", name);
}

bool IsFirstEvalSet(const JobSpec& spec, std::string_view name) {
  const std::vector<EvalSet> sets = EvalSets(spec);
  return !sets.empty() && sets.front().name() == name;
}

std::string EvalPath(const JobSpec& spec, const EvalSet& set) {
  return set.has_path() ? set.path() : DatasetOfTask(spec, set.task()).eval_path();
}

int64_t HeldOutRows(const JobSpec& spec) {
  int64_t most = 0;
  for (const EvalSet& set : EvalSets(spec)) {
    if (EvalPath(spec, set).empty()) most = std::max(most, set.rows());
  }
  return most;
}

}  // namespace freshet
