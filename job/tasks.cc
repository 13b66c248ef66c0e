#include "job/tasks.h"

#include <algorithm>
#include <utility>

#include "base/task_field.h"
#include "job/eval_sets.h"

namespace freshet {

using job::v1::JobSpec;

std::vector<std::string> TaskNames(const JobSpec& spec) {
  if (spec.tasks().empty()) return {""};
  std::vector<std::string> names;
  names.reserve(spec.tasks().size());
  for (const auto& [name, task] : spec.tasks()) names.push_back(name);
  std::sort(names.begin(), names.end());
  return names;
}

JobSpec TaskSpec(const JobSpec& spec, const std::string& task) {
  JobSpec only = spec;
  if (spec.tasks().empty()) return only;
  *only.mutable_dataset() = DatasetOfTask(spec, task);
  only.clear_tasks();
  auto& components = *only.mutable_reward()->mutable_components();
  for (const auto& [name, component] : spec.reward().components()) {
    if (!ScoresTask(component.tasks(), task)) components.erase(name);
  }
  only.mutable_eval()->clear_sets();
  for (job::v1::EvalSet& set : EvalSets(spec)) {
    if (set.task() == task) *only.mutable_eval()->add_sets() = std::move(set);
  }
  if (only.eval().sets().empty()) only.clear_eval();
  return only;
}

const job::v1::Dataset& DatasetOfTask(const JobSpec& spec, const std::string& task) {
  const auto found = spec.tasks().find(task);
  return found == spec.tasks().end() ? spec.dataset() : found->second.dataset();
}

const job::v1::Dataset& AnyDataset(const JobSpec& spec) {
  return DatasetOfTask(spec, TaskNames(spec).front());
}

const job::v1::Dataset& DatasetOfRow(const JobSpec& spec,
                                     const std::map<std::string, std::string>& fields) {
  return DatasetOfTask(spec, TaskOfRow(fields));
}

double SuccessReward(const JobSpec& spec, std::string_view task) {
  double sum = 0;
  for (const auto& [name, component] : spec.reward().components()) {
    // These have no positive values.
    const bool penalty = component.type() == "length" && component.shape() != "window";
    if (ScoresTask(component.tasks(), task) && !penalty) sum += std::max(0.0, component.weight());
  }
  return sum;
}

}  // namespace freshet
