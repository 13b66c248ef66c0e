#ifndef FRESHET_DATASET_TASK_CURRICULUM_H_
#define FRESHET_DATASET_TASK_CURRICULUM_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/mutex.h"

namespace freshet {

// The part of a task's weight that counts: max(least, 4 * p * (1 - p)) with p its success, 0 to 1.
// 1 for a task that succeeds half of the time, `least` for one that always or never succeeds, and 1
// while its success is unknown. p * (1 - p) is the variance of success: arXiv:2502.12272, section 3
// ("learnability"). Pure.
double CurriculumFactor(std::optional<double> success, double least);

// Chooses the tasks of prompts by weight and measured success. Thread-safe.
class TaskCurriculum {
 public:
  struct Task {
    std::string name;
    double weight = 1;          // > 0
    double success_reward = 1;  // reward of a sample that succeeds, > 0
  };
  struct Options {
    double least_factor = 0.1;  // in (0, 1]
    double smoothing = 0.2;     // part of the newest step in a task's success, in (0, 1]
  };
  // Requires at least one task.
  TaskCurriculum(std::vector<Task> tasks, Options options);

  // The mean rewards by task of a training step. Steps that are not after the last one, by lineage
  // and number, are ignored, and so are names that are no tasks.
  void Observe(int64_t lineage, int64_t step, const std::map<std::string, double>& rewards)
      ABSL_LOCKS_EXCLUDED(mu_);
  // Forgets all steps. The order of the prompts goes on.
  void Reset() ABSL_LOCKS_EXCLUDED(mu_);
  // The task of the next prompt: smooth weighted round-robin over the shares.
  size_t Next() ABSL_LOCKS_EXCLUDED(mu_);

 private:
  // Of each task among the prompts; they add up to 1.
  std::vector<double> Shares() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const std::vector<Task> tasks_;
  const Options options_;
  Mutex mu_;
  std::pair<int64_t, int64_t> last_ ABSL_GUARDED_BY(mu_) = {0, 0};  // lineage and step
  std::vector<std::optional<double>> success_ ABSL_GUARDED_BY(mu_);
  std::vector<double> due_ ABSL_GUARDED_BY(mu_);  // prompts that a task has not had yet
};

}  // namespace freshet

#endif  // FRESHET_DATASET_TASK_CURRICULUM_H_
