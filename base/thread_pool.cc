#include "base/thread_pool.h"

#include <algorithm>

namespace freshet {
namespace {

// An engine's loops follow each other within microseconds, so a thread looks for the next one this
// often before it sleeps.
constexpr int kSpins = 2000;
// A thread takes several tasks at a time if there are many, up to kMaxGrain, but so that each takes
// about kGrains times.
constexpr int64_t kGrains = 32;
constexpr int64_t kMaxGrain = 16;

inline void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

// Waits until `value` is not `old`.
template <typename T>
void Await(const std::atomic<T>& value, T old) {
  for (int i = 0; i < kSpins; ++i) {
    if (value.load(std::memory_order_acquire) != old) return;
    Pause();
  }
  value.wait(old, std::memory_order_acquire);
}

}  // namespace

ThreadPool::ThreadPool(int threads) {
  try {
    for (int thread = 1; thread < threads; ++thread) {
      threads_.emplace_back([this, thread] { Work(thread); });
    }
  } catch (...) {
    Stop();
    throw;
  }
}

ThreadPool::~ThreadPool() { Stop(); }

void ThreadPool::Stop() {
  stopping_.store(true);
  loops_.fetch_add(1);
  loops_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void ThreadPool::Work(int thread) {
  uint32_t seen = 0;
  while (true) {
    Await(loops_, seen);
    ++seen;
    if (stopping_.load()) return;
    RunTasks(thread);
    if (running_.fetch_sub(1, std::memory_order_acq_rel) == 1) running_.notify_one();
  }
}

void ThreadPool::RunTasks(int thread) {
  while (true) {
    const int64_t first = next_.fetch_add(grain_, std::memory_order_relaxed);
    if (first >= count_) return;
    const int64_t end = std::min(count_, first + grain_);
    for (int64_t i = first; i < end; ++i) (*task_)(i, thread);
  }
}

void ThreadPool::For(int64_t count, absl::FunctionRef<void(int64_t i, int thread)> task) {
  if (threads_.empty() || count <= 1) {
    for (int64_t i = 0; i < count; ++i) task(i, 0);
    return;
  }
  task_ = &task;
  count_ = count;
  grain_ = std::clamp<int64_t>(count / (kGrains * this->threads()), 1, kMaxGrain);
  next_.store(0, std::memory_order_relaxed);
  running_.store(static_cast<int>(threads_.size()), std::memory_order_relaxed);
  loops_.fetch_add(1, std::memory_order_release);
  loops_.notify_all();
  RunTasks(0);
  for (int left = running_.load(std::memory_order_acquire); left > 0;
       left = running_.load(std::memory_order_acquire)) {
    Await(running_, left);
  }
}

}  // namespace freshet
