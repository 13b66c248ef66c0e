#ifndef FRESHET_SERVICES_WORKER_DIRECTIVE_QUEUE_H_
#define FRESHET_SERVICES_WORKER_DIRECTIVE_QUEUE_H_

#include <cstddef>
#include <deque>
#include <functional>
#include <string>
#include <thread>

#include "absl/time/time.h"
#include "base/mutex.h"
#include "services/worker/worker_ports.h"

namespace freshet::runtime {

// Delivers a worker's events to its sink, in order, on its own thread. Thread-safe.
class DirectiveQueue {
 public:
  // `sink` must outlive the queue.
  DirectiveQueue(DirectiveSink& sink, size_t max_directives);
  // Calls Stop().
  ~DirectiveQueue();

  // These two never fail: the agent adds few of them, and only while there is room.
  void AddEpoch(std::string worker) ABSL_LOCKS_EXCLUDED(mu_);
  void AddFenced(std::string reason) ABSL_LOCKS_EXCLUDED(mu_);
  // Returns false if max_directives events are queued.
  bool AddDirective(cluster::v1::Directive directive) ABSL_LOCKS_EXCLUDED(mu_);
  // Waits until at least half of the queue is free; returns false on timeout.
  bool AwaitRoom(absl::Duration timeout) ABSL_LOCKS_EXCLUDED(mu_);
  // Stops the thread after its current call and drops queued events. Idempotent.
  void Stop() ABSL_LOCKS_EXCLUDED(mu_, join_mu_);

 private:
  using Event = std::function<void(DirectiveSink&)>;

  void Add(Event event) ABSL_LOCKS_EXCLUDED(mu_);
  void Run() ABSL_LOCKS_EXCLUDED(mu_);

  DirectiveSink& sink_;
  const size_t max_directives_;
  Mutex mu_;
  CondVar cv_;
  std::deque<Event> events_ ABSL_GUARDED_BY(mu_);
  bool stopped_ ABSL_GUARDED_BY(mu_) = false;
  Mutex join_mu_;
  std::thread thread_ ABSL_GUARDED_BY(join_mu_);
};

}  // namespace freshet::runtime

#endif  // FRESHET_SERVICES_WORKER_DIRECTIVE_QUEUE_H_
