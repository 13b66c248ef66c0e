#include "dataset/task_curriculum.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

namespace freshet {

double CurriculumFactor(std::optional<double> success, double least) {
  return success.has_value() ? std::max(least, 4 * *success * (1 - *success)) : 1;
}

TaskCurriculum::TaskCurriculum(std::vector<Task> tasks, Options options)
    : tasks_(std::move(tasks)), options_(options), success_(tasks_.size()), due_(tasks_.size()) {}

void TaskCurriculum::Observe(int64_t lineage, int64_t step,
                             const std::map<std::string, double>& rewards) {
  MutexLock lock(mu_);
  const std::pair<int64_t, int64_t> key(lineage, step);
  if (key <= last_) return;
  last_ = key;
  for (size_t i = 0; i < tasks_.size(); ++i) {
    const auto reward = rewards.find(tasks_[i].name);
    if (reward == rewards.end() || !std::isfinite(reward->second)) continue;
    const double success = std::clamp(reward->second / tasks_[i].success_reward, 0.0, 1.0);
    const double before = success_[i].value_or(success);
    success_[i] = before + options_.smoothing * (success - before);
  }
}

void TaskCurriculum::Reset() {
  MutexLock lock(mu_);
  last_ = {0, 0};
  success_.assign(tasks_.size(), std::nullopt);
}

std::vector<double> TaskCurriculum::Shares() const {
  std::vector<double> shares;
  shares.reserve(tasks_.size());
  for (size_t i = 0; i < tasks_.size(); ++i) {
    shares.push_back(tasks_[i].weight * CurriculumFactor(success_[i], options_.least_factor));
  }
  const double sum = std::accumulate(shares.begin(), shares.end(), 0.0);
  for (double& share : shares) share /= sum;
  return shares;
}

size_t TaskCurriculum::Next() {
  MutexLock lock(mu_);
  const std::vector<double> shares = Shares();
  for (size_t i = 0; i < shares.size(); ++i) due_[i] += shares[i];
  const auto next = std::max_element(due_.begin(), due_.end());
  *next -= 1;
  return static_cast<size_t>(next - due_.begin());
}

}  // namespace freshet
