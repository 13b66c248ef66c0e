#include "dataset/task_mixture.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/mutex.h"
#include "base/row_order.h"
#include "base/status_macros.h"
#include "base/str_cat.h"
#include "base/task_field.h"

namespace freshet {
namespace {

class TaskRows final : public Dataset {
 public:
  TaskRows(std::string task, std::shared_ptr<const Dataset> rows)
      : task_(std::move(task)), rows_(std::move(rows)) {}

  int64_t size() const override { return rows_->size(); }
  absl::StatusOr<DatasetRow> Get(int64_t index) const override {
    FRESHET_ASSIGN_OR_RETURN(DatasetRow row, rows_->Get(index));
    if (!row.attributes.emplace(kTaskField, task_).second) {
      return InvalidArgument(Where(index), ": has a field '", kTaskField,
                             "', which names the task in jobs with tasks; rename it");
    }
    return row;
  }
  std::string Where(int64_t index) const override {
    return StrCat("task ", task_, ": ", rows_->Where(index));
  }

 private:
  const std::string task_;
  const std::shared_ptr<const Dataset> rows_;
};

class TaskMixture final : public Dataset {
 public:
  TaskMixture(std::vector<MixedTask> tasks, std::shared_ptr<TaskCurriculum> curriculum)
      : tasks_(std::move(tasks)), curriculum_(std::move(curriculum)) {
    std::vector<int64_t> weights;
    weights.reserve(tasks_.size());
    firsts_.reserve(tasks_.size());
    for (const MixedTask& task : tasks_) {
      weights.push_back(task.weight);
      firsts_.push_back(size_);
      size_ += task.rows->size();
    }
    std::vector<int64_t> seen(tasks_.size());
    for (const size_t task : TaskOrder(weights)) round_.push_back({task, seen[task]++});
  }

  int64_t size() const override { return size_; }

  absl::StatusOr<DatasetRow> Get(int64_t index) const override {
    FRESHET_RETURN_IF_ERROR(CheckRowIndex(index, size_));
    const size_t task = TaskOf(index);
    return tasks_[task].rows->Get(index - firsts_[task]);
  }

  std::string Where(int64_t index) const override {
    if (!CheckRowIndex(index, size_).ok()) return StrCat("row ", index);
    const size_t task = TaskOf(index);
    return tasks_[task].rows->Where(index - firsts_[task]);
  }

  int64_t RowOf(uint64_t seed, int64_t ordinal, bool /*shuffle*/) const override {
    const Slot slot = curriculum_ == nullptr ? SlotOf(ordinal) : ChooseSlot(ordinal);
    const MixedTask& task = tasks_[slot.task];
    return firsts_[slot.task] +
           RowOfOrdinal(seed + slot.task, task.rows->size(), slot.place, task.shuffle);
  }

 private:
  struct Slot {
    size_t task = 0;
    int64_t place = 0;  // among the prompts of that task
  };

  Slot SlotOf(int64_t ordinal) const {
    const auto length = static_cast<int64_t>(round_.size());
    Slot slot = round_[static_cast<size_t>(ordinal % length)];
    slot.place += ordinal / length * tasks_[slot.task].weight;
    return slot;
  }

  Slot ChooseSlot(int64_t ordinal) const {
    MutexLock lock(mu_);
    if (next_.empty()) {
      const auto rounds = ordinal / static_cast<int64_t>(round_.size());
      for (const MixedTask& task : tasks_) next_.push_back(rounds * task.weight);
    }
    if (ordinal != chosen_for_) {
      chosen_for_ = ordinal;
      chosen_.task = curriculum_->Next();
      chosen_.place = next_[chosen_.task]++;
    }
    return chosen_;
  }

  size_t TaskOf(int64_t index) const {
    const auto after = std::upper_bound(firsts_.begin(), firsts_.end(), index);
    return static_cast<size_t>(after - firsts_.begin()) - 1;
  }

  const std::vector<MixedTask> tasks_;
  std::vector<int64_t> firsts_;  // index of each task's first row
  std::vector<Slot> round_;
  int64_t size_ = 0;
  const std::shared_ptr<TaskCurriculum> curriculum_;  // null: the order is that of SlotOf

  mutable Mutex mu_;
  mutable std::vector<int64_t> next_ ABSL_GUARDED_BY(mu_);  // place by task
  mutable Slot chosen_ ABSL_GUARDED_BY(mu_);
  mutable int64_t chosen_for_ ABSL_GUARDED_BY(mu_) = -1;
};

}  // namespace

std::shared_ptr<const Dataset> RowsOfTask(std::string task, std::shared_ptr<const Dataset> rows) {
  return std::make_shared<TaskRows>(std::move(task), std::move(rows));
}

std::shared_ptr<const Dataset> MixTasks(std::vector<MixedTask> tasks,
                                        std::shared_ptr<TaskCurriculum> curriculum) {
  return std::make_shared<TaskMixture>(std::move(tasks), std::move(curriculum));
}

std::vector<size_t> TaskOrder(const std::vector<int64_t>& weights) {
  const int64_t sum = std::accumulate(weights.begin(), weights.end(), int64_t{0});
  std::vector<int64_t> due(weights.size());
  std::vector<size_t> order;
  order.reserve(static_cast<size_t>(sum));
  for (int64_t slot = 0; slot < sum; ++slot) {
    for (size_t i = 0; i < weights.size(); ++i) due[i] += weights[i];
    const auto next = std::max_element(due.begin(), due.end());
    *next -= sum;
    order.push_back(static_cast<size_t>(next - due.begin()));
  }
  return order;
}

}  // namespace freshet
