#include "controller/jobs/plan/scheduler.h"

#include <algorithm>
#include <tuple>

#include "base/str_cat.h"

namespace freshet {
namespace {

TrainerSlot* FindTrainer(std::vector<TrainerSlot>& trainers, const QueuedJob& job) {
  for (TrainerSlot& slot : trainers) {
    if (!slot.ready || !slot.job.empty()) continue;
    if (job.trainer.empty() || slot.name == job.trainer) return &slot;
  }
  return nullptr;
}

PoolSlot* FindPool(std::vector<PoolSlot>& pools, const std::string& name) {
  const auto found = std::find_if(pools.begin(), pools.end(),
                                  [&name](const PoolSlot& slot) { return slot.name == name; });
  return found == pools.end() ? nullptr : &*found;
}

std::string Holders(std::vector<std::string> jobs) {
  std::string text;
  for (size_t i = 0; i < jobs.size() && i < 3; ++i) text += (i == 0 ? "" : ", ") + jobs[i];
  if (jobs.size() > 3) text += ", ...";
  return text;
}

std::string TrainerReason(const std::vector<TrainerSlot>& trainers, const QueuedJob& job) {
  int64_t ready = 0;
  std::vector<std::string> holders;
  const TrainerSlot* own = nullptr;
  for (const TrainerSlot& slot : trainers) {
    ready += slot.ready ? 1 : 0;
    if (slot.ready && !slot.job.empty()) holders.push_back(slot.job);
    if (slot.name == job.trainer) own = &slot;
  }
  if (!job.trainer.empty()) {
    const std::string what = StrCat("waits for trainer ", job.trainer, ", which has its files: ");
    if (own == nullptr || !own->ready) return StrCat(what, "it is not there");
    return StrCat(what, "it works for ", own->job);
  }
  if (ready == 0) {
    return StrCat("waits for a trainer: 0 of ", std::max<size_t>(1, trainers.size()), " ready");
  }
  return StrCat("waits for a trainer: 0 of ", ready, " free, taken by ", Holders(holders));
}

int64_t Ready(const PoolSlot& pool, const std::string& engine) {
  const auto found = pool.ready.find(engine);
  return found == pool.ready.end() ? 0 : found->second;
}

std::string PoolReason(const PoolSlot* pool, const QueuedJob& job) {
  if (pool != nullptr && Ready(*pool, job.engine) > 0) {
    return StrCat("waits for pool ", job.pool, ": its ", Ready(*pool, job.engine),
                  " rollouts work for ", pool->job);
  }
  std::string others;
  if (pool != nullptr) {
    for (const auto& [engine, count] : pool->ready) {
      others += StrCat(others.empty() ? "" : ", ", count, " with engine ", engine);
    }
  }
  if (others.empty() && job.engine == "native") {
    return StrCat("waits for rollouts: 0 ready in pool ", job.pool);
  }
  return StrCat("needs a rollout with engine ", job.engine, ": pool ", job.pool, " has ",
                others.empty() ? "none that is ready" : others);
}

}  // namespace

Schedule ScheduleJobs(const ScheduleInput& input) {
  std::vector<QueuedJob> queue = input.queue;
  std::sort(queue.begin(), queue.end(), [](const QueuedJob& a, const QueuedJob& b) {
    return std::make_tuple(-int64_t{a.priority}, a.created, a.id) <
           std::make_tuple(-int64_t{b.priority}, b.created, b.id);
  });
  std::vector<TrainerSlot> trainers = input.trainers;
  std::vector<PoolSlot> pools = input.pools;
  std::sort(trainers.begin(), trainers.end(),
            [](const TrainerSlot& a, const TrainerSlot& b) { return a.name < b.name; });
  Schedule schedule;
  for (const QueuedJob& job : queue) {
    TrainerSlot* trainer = FindTrainer(trainers, job);
    PoolSlot* pool = FindPool(pools, job.pool);
    const bool pool_free = pool != nullptr && Ready(*pool, job.engine) > 0 && pool->job.empty();
    if (trainer != nullptr && pool_free) {
      trainer->job = job.id;
      pool->job = job.id;
      schedule.starts.push_back({job.id, trainer->name, pool->name});
      continue;
    }
    schedule.waits.push_back(
        {job.id, trainer == nullptr ? TrainerReason(trainers, job) : PoolReason(pool, job)});
    // Keep what it could already use, so that a stream of later jobs does not starve it.
    if (trainer != nullptr) trainer->job = job.id;
    if (pool_free) pool->job = job.id;
  }
  return schedule;
}

}  // namespace freshet
