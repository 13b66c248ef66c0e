#ifndef FRESHET_JOB_TASKS_H_
#define FRESHET_JOB_TASKS_H_

#include <algorithm>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "freshet/job/v1/job_spec.pb.h"

namespace freshet {

// All functions are pure and thread-safe.

// The names of the job's tasks, sorted; one empty name without `tasks`.
std::vector<std::string> TaskNames(const job::v1::JobSpec& spec);

// The job as it would be with only this task: its dataset, the reward components and evaluation
// sets that belong to it, and no `tasks`. The job itself without `tasks`.
job::v1::JobSpec TaskSpec(const job::v1::JobSpec& spec, const std::string& task);

// The dataset of `task`, or the job's only one.
const job::v1::Dataset& DatasetOfTask(const job::v1::JobSpec& spec, const std::string& task);
// The job's only dataset, or that of the first task. For what an environment needs to be the same
// in all tasks.
const job::v1::Dataset& AnyDataset(const job::v1::JobSpec& spec);
// The dataset for the task of a row with these fields.
const job::v1::Dataset& DatasetOfRow(const job::v1::JobSpec& spec,
                                     const std::map<std::string, std::string>& fields);

// The reward of a sample of `task` that satisfies every component: the sum of the positive weights,
// without those of components that only take away.
double SuccessReward(const job::v1::JobSpec& spec, std::string_view task);

// Whether a reward component with these `tasks` scores the samples of `task`: all without any.
template <class Names>
bool ScoresTask(const Names& tasks, std::string_view task) {
  return tasks.empty() || std::find(tasks.begin(), tasks.end(), task) != tasks.end();
}

}  // namespace freshet

#endif  // FRESHET_JOB_TASKS_H_
