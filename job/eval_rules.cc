#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_join.h"
#include "job/eval_sets.h"
#include "job/rule_context.h"
#include "job/tasks.h"

namespace freshet {
namespace {

constexpr double kMinTemperature = 1e-4;     // as for rollout.temperature
constexpr int64_t kMaxSamples = 10'000'000;  // of a set, as kMaxEvaluationRows of the datastore

void CheckTaskOfSet(RuleContext& context, const job::v1::EvalSet& set, size_t index) {
  const JobSpec& spec = context.spec();
  const std::string key = EvalSetKey(spec, index, "task");
  if (spec.tasks().empty()) {
    if (set.has_task()) context.Add(key, "has no effect without tasks; remove it");
  } else if (!set.has_task()) {
    context.Add(key, "is required with tasks; give one of ", absl::StrJoin(TaskNames(spec), ", "));
  } else if (!spec.tasks().contains(set.task())) {
    context.Add(key, "must be one of ", absl::StrJoin(TaskNames(spec), ", "), ", got '",
                Excerpt(set.task()), "'");
  }
}

void CheckSet(RuleContext& context, const job::v1::EvalSet& set, size_t index) {
  const auto key = [&](std::string_view setting) {
    return EvalSetKey(context.spec(), index, setting);
  };
  if (!IsName(set.name(), "_-")) {
    context.Add(key("name"), "must be letters, digits, '_' and '-', starting with a letter or ",
                "a digit; got '", Excerpt(set.name()), "'");
  }
  CheckTaskOfSet(context, set, index);
  if (set.has_path() && DatasetOfTask(context.spec(), set.task()).type() != "jsonl") {
    context.Add(key("path"), "applies only with dataset.type jsonl; remove it");
  }
  const int64_t samples = set.samples_per_prompt();
  std::set<int64_t> seen;
  for (const int64_t k : set.pass_at()) {
    if (k < 1 || k > samples) {
      context.Add(key("pass_at"), "each must be from 1 to samples_per_prompt ", samples, ", got ",
                  k);
    } else if (!seen.insert(k).second) {
      context.Add(key("pass_at"), "holds ", k, " twice; remove one");
    }
  }
  if (set.temperature() > 0 && set.temperature() < kMinTemperature) {
    context.Add(key("temperature"), "must be 0 or at least ", kMinTemperature, ", got ",
                set.temperature());
  }
  if (set.rows() > kMaxSamples / samples) {
    context.Add(key("rows"), set.rows(), " rows with ", samples, " samples each are more than ",
                kMaxSamples, " samples; evaluate fewer rows or samples");
  }
}

// Checks keys of `eval` that no set may use.
void CheckDefaults(RuleContext& context, const std::vector<job::v1::EvalSet>& sets) {
  const job::v1::Eval& eval = context.spec().eval();
  if (eval.has_name()) {
    context.Add("eval.name", "has no effect with eval.sets, which have names; remove it");
  }
  for (const int64_t k : eval.pass_at()) {
    if (std::none_of(sets.begin(), sets.end(),
                     [&](const auto& set) { return k <= set.samples_per_prompt(); })) {
      context.Add("eval.pass_at", "no set has at least ", k,
                  " samples per prompt; remove it or raise samples_per_prompt");
    }
  }
}

// Of checkpoints that are kept by their accuracy.
void CheckKeepBest(RuleContext& context) {
  const job::v1::Checkpoint& checkpoint = context.spec().checkpoint();
  if (!context.Usable({"checkpoint.keep_best", "checkpoint.every_steps", "eval.every_steps"}) ||
      checkpoint.keep_best() == 0) {
    return;
  }
  if (!context.spec().has_eval()) {
    context.Add("checkpoint.keep_best", "needs evaluations; add eval, or remove it");
    return;
  }
  const int64_t every = context.spec().eval().every_steps();
  if (checkpoint.every_steps() == 0 || checkpoint.every_steps() % every != 0) {
    context.Add("checkpoint.keep_best", "checkpoint.every_steps must be a multiple of ",
                "eval.every_steps ", every, ", so that each checkpoint is evaluated; got ",
                checkpoint.every_steps());
  }
}

}  // namespace

std::string EvalSetKey(const JobSpec& spec, size_t set, std::string_view setting) {
  return spec.eval().sets().empty() ? StrCat("eval.", setting)
                                    : StrCat("eval.sets.", set, ".", setting);
}

void CheckEvalRules(RuleContext& context) {
  CheckKeepBest(context);
  const job::v1::Eval& eval = context.spec().eval();
  if (!context.spec().has_eval() || !context.Usable({"eval"})) return;
  const std::vector<job::v1::EvalSet> sets = EvalSets(context.spec());
  if (!eval.sets().empty()) CheckDefaults(context, sets);
  std::set<std::string> names;
  for (size_t i = 0; i < sets.size(); ++i) {
    CheckSet(context, sets[i], i);
    if (!names.insert(sets[i].name()).second) {
      context.Add(EvalSetKey(context.spec(), i, "name"), "another set is called ", sets[i].name(),
                  "; names must be different");
    }
  }
}

}  // namespace freshet
