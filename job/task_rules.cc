#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_join.h"
#include "job/rule_context.h"
#include "job/tasks.h"

namespace freshet {
namespace {

void CheckComponents(RuleContext& context) {
  const JobSpec& spec = context.spec();
  for (const auto& [name, component] : spec.reward().components()) {
    const std::string path = StrCat("reward.components.", name, ".tasks");
    for (const std::string& task : component.tasks()) {
      if (spec.tasks().contains(task)) continue;
      if (spec.tasks().empty()) {
        context.Add(path, "has no effect without tasks; remove it");
      } else {
        context.Add(path, "each must be one of ", absl::StrJoin(TaskNames(spec), ", "), ", got '",
                    Excerpt(task), "'");
      }
      break;
    }
  }
  for (const auto& [task, unused] : spec.tasks()) {
    if (TaskSpec(spec, task).reward().components().empty() && !spec.reward().components().empty()) {
      context.Add(StrCat("tasks.", task), "no component of the reward scores it; add ", task,
                  " to reward.components.NAME.tasks of one");
    }
  }
}

// An environment plays all tasks in the same way.
void CheckPlayed(RuleContext& context) {
  const JobSpec& spec = context.spec();
  const job::v1::Environment& environment = spec.environment();
  const job::v1::Dataset& first = spec.tasks().begin()->second.dataset();
  for (const auto& [name, task] : spec.tasks()) {
    const std::string path = StrCat("tasks.", name, ".");
    if (task.has_environment() && environment.type() != "grpc") {
      context.Add(path + "environment", "needs environment.type grpc; remove it");
    }
    const auto same = [](const job::v1::Chat& a, const job::v1::Chat& b) {
      return a.template_kwargs().size() == b.template_kwargs().size() &&
             std::all_of(
                 a.template_kwargs().begin(), a.template_kwargs().end(), [&b](const auto& entry) {
                   const auto other = b.template_kwargs().find(entry.first);
                   return other != b.template_kwargs().end() && other->second == entry.second;
                 });
    };
    if (spec.has_environment() && (task.dataset().has_chat() != first.has_chat() ||
                                   !same(task.dataset().chat(), first.chat()))) {
      context.Add(path + "dataset.chat",
                  "with an environment, all tasks must have the block chat, with the same "
                  "template_kwargs, or none");
    }
  }
}

void CheckCurriculum(RuleContext& context) {
  const JobSpec& spec = context.spec();
  if (!spec.has_curriculum() || !context.Usable({"curriculum", "reward", "staleness", "filter"}))
    return;
  if (spec.tasks().empty()) {
    context.Add("curriculum", "chooses among tasks, but the job has none; remove it");
    return;
  }
  if (spec.staleness().max() == 0) {
    context.Add("curriculum",
                "needs staleness.max above 0: with 0 runs are repeatable, but which rows a "
                "curriculum chooses depends on time");
  }
  const job::v1::Filter& filter = spec.filter();
  if (filter.zero_variance() || filter.has_min_mean_reward() || filter.has_max_mean_reward()) {
    context.Add("curriculum",
                "measures the success of trained groups, which a filter would distort; remove "
                "filter.zero_variance, min_mean_reward and max_mean_reward");
  }
  for (const std::string& task : TaskNames(spec)) {
    if (SuccessReward(spec, task) > 0) continue;
    context.Add("curriculum", "measures success by the positive weights of reward components, but ",
                task, " has none");
  }
}

}  // namespace

void CheckTaskRules(RuleContext& context) {
  const JobSpec& spec = context.spec();
  if (!context.Usable({"tasks", "dataset"})) return;
  if (!spec.has_dataset() && spec.tasks().empty()) {
    context.Add("dataset", "is required but missing; give it, or tasks");
  } else if (spec.has_dataset() && !spec.tasks().empty()) {
    context.Add("dataset", "has no effect with tasks, which have datasets; remove one of them");
  }
  for (const auto& [name, task] : spec.tasks()) {
    if (IsName(name, "_-") && name.size() <= 63) continue;
    context.Add(StrCat("tasks.", name),
                "the name of a task is at most 63 letters, digits, '_' and '-', starting with a "
                "letter or a digit");
  }
  if (!spec.tasks().empty() && spec.eval().has_name()) {
    context.Add("eval.name", "has no effect with tasks, whose names evaluations have; remove it");
  }
  for (const auto& [name, task] : spec.tasks()) {
    if (!task.dataset().has_more_path()) continue;
    context.Add(StrCat("tasks.", name, ".dataset.more_path"),
                "only a job's only dataset can grow; remove it, or use dataset instead of tasks");
  }
  if (spec.dataset().has_more_path() && context.Usable({"staleness"}) &&
      spec.staleness().max() == 0) {
    context.Add("dataset.more_path",
                "needs staleness.max above 0: with 0 runs are repeatable, but when files appear "
                "depends on time");
  }
  if (context.Usable({"reward"})) CheckComponents(context);
  if (!spec.tasks().empty()) CheckPlayed(context);
  CheckCurriculum(context);
}

}  // namespace freshet
