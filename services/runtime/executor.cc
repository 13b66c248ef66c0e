#include "services/runtime/executor.h"

#include <utility>

namespace freshet::runtime {

Executor::Executor(int threads, size_t max_queue) : max_queue_(max_queue) {
  for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { Run(); });
}

Executor::~Executor() { Stop(); }

bool Executor::TrySubmit(std::function<void()> work) {
  MutexLock lock(mu_);
  if (stopped_ || queue_.size() >= max_queue_) return false;
  queue_.push_back(std::move(work));
  cv_.NotifyAll();
  return true;
}

void Executor::Stop() {
  std::vector<std::thread> threads;
  {
    MutexLock lock(mu_);
    stopped_ = true;
    threads.swap(threads_);
    cv_.NotifyAll();
  }
  for (std::thread& thread : threads) thread.join();
}

size_t Executor::queued() const {
  MutexLock lock(mu_);
  return queue_.size();
}

void Executor::Run() {
  while (true) {
    std::function<void()> work;
    {
      MutexLock lock(mu_);
      while (queue_.empty() && !stopped_) cv_.WaitFor(mu_, absl::Hours(1));
      if (queue_.empty()) return;
      work = std::move(queue_.front());
      queue_.pop_front();
    }
    work();
  }
}

}  // namespace freshet::runtime
