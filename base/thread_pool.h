#ifndef FRESHET_BASE_THREAD_POOL_H_
#define FRESHET_BASE_THREAD_POOL_H_

#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

#include "absl/functional/function_ref.h"

namespace freshet {

// Threads that share the loops of one caller. A loop costs a few microseconds, so loops may be
// short. For is called by one thread at a time.
class ThreadPool {
 public:
  // `threads` includes the caller of For; at least 1. Throws std::system_error if they cannot
  // start.
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const { return static_cast<int>(threads_.size()) + 1; }

  // Calls task(i, thread) for every i of [0, count), with `thread` in [0, threads()), and returns
  // when all calls have returned. Which thread gets which i varies. Tasks must not throw.
  void For(int64_t count, absl::FunctionRef<void(int64_t i, int thread)> task);

 private:
  void Work(int thread);
  void Stop();
  void RunTasks(int thread);

  const absl::FunctionRef<void(int64_t, int)>* task_ = nullptr;
  int64_t count_ = 0;
  int64_t grain_ = 1;  // tasks that a thread takes at a time
  std::atomic<int64_t> next_ = 0;
  std::atomic<int> running_ = 0;  // threads that have not finished the current loop
  std::atomic<uint32_t> loops_ = 0;
  std::atomic<bool> stopping_ = false;
  std::vector<std::thread> threads_;  // last: they use the other members
};

}  // namespace freshet

#endif  // FRESHET_BASE_THREAD_POOL_H_
