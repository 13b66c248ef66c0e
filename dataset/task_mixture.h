#ifndef FRESHET_DATASET_TASK_MIXTURE_H_
#define FRESHET_DATASET_TASK_MIXTURE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "dataset/dataset.h"
#include "dataset/task_curriculum.h"

namespace freshet {

// Rows of one task: those of `rows`, with the field `task` (kTaskField). Thread-safe.
std::shared_ptr<const Dataset> RowsOfTask(std::string task, std::shared_ptr<const Dataset> rows);

// One task of a mixture.
struct MixedTask {
  int64_t weight = 1;  // >= 1
  bool shuffle = true;
  std::shared_ptr<const Dataset> rows;
};

// The rows of several tasks, one task after the other. In the order of prompts (RowOf) the tasks
// alternate: with W the sum of the weights, every W prompts from a multiple of W on hold each task
// as often as its weight says, spread evenly. Each task's own rows come in passes, as in
// RowOfOrdinal. Thread-safe. Requires at least one task.
//
// With `curriculum`, whose tasks are the same, that chooses the task of each prompt instead: RowOf
// then depends on the calls before it. Calls must have increasing ordinals; the last one may be
// repeated. A task's pass begins where its weight would have led to by the first ordinal.
std::shared_ptr<const Dataset> MixTasks(std::vector<MixedTask> tasks,
                                        std::shared_ptr<TaskCurriculum> curriculum = nullptr);

// The order of tasks in one round of sum(weights) prompts: index of the task for each. Smooth
// weighted round-robin, ties to the first task. Pure.
std::vector<size_t> TaskOrder(const std::vector<int64_t>& weights);

}  // namespace freshet

#endif  // FRESHET_DATASET_TASK_MIXTURE_H_
