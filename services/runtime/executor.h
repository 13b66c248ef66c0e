#ifndef FRESHET_SERVICES_RUNTIME_EXECUTOR_H_
#define FRESHET_SERVICES_RUNTIME_EXECUTOR_H_

#include <cstddef>
#include <deque>
#include <functional>
#include <thread>
#include <vector>

#include "base/mutex.h"

namespace freshet::runtime {

// A fixed number of threads with a bounded queue, for calls that may block. Thread-safe.
class Executor {
 public:
  Executor(int threads, size_t max_queue);
  // Calls Stop().
  ~Executor();
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  // Returns false, without running `work`, if the queue is full or the executor was stopped.
  bool TrySubmit(std::function<void()> work) ABSL_LOCKS_EXCLUDED(mu_);
  // Runs queued work and ends the threads. Idempotent.
  void Stop() ABSL_LOCKS_EXCLUDED(mu_);
  size_t queued() const ABSL_LOCKS_EXCLUDED(mu_);

 private:
  void Run() ABSL_LOCKS_EXCLUDED(mu_);

  const size_t max_queue_;
  mutable Mutex mu_;
  CondVar cv_;
  std::deque<std::function<void()>> queue_ ABSL_GUARDED_BY(mu_);
  bool stopped_ ABSL_GUARDED_BY(mu_) = false;
  std::vector<std::thread> threads_ ABSL_GUARDED_BY(mu_);
};

}  // namespace freshet::runtime

#endif  // FRESHET_SERVICES_RUNTIME_EXECUTOR_H_
