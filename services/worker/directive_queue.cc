#include "services/worker/directive_queue.h"

#include <utility>

#include "absl/time/clock.h"

namespace freshet::runtime {

DirectiveQueue::DirectiveQueue(DirectiveSink& sink, size_t max_directives)
    : sink_(sink), max_directives_(max_directives), thread_([this] { Run(); }) {}

DirectiveQueue::~DirectiveQueue() { Stop(); }

void DirectiveQueue::AddEpoch(std::string worker) {
  Add([worker = std::move(worker)](DirectiveSink& sink) { sink.OnEpoch(worker); });
}

void DirectiveQueue::AddFenced(std::string reason) {
  Add([reason = std::move(reason)](DirectiveSink& sink) { sink.OnFenced(reason); });
}

bool DirectiveQueue::AddDirective(cluster::v1::Directive directive) {
  MutexLock lock(mu_);
  if (events_.size() >= max_directives_) return false;
  events_.push_back(
      [directive = std::move(directive)](DirectiveSink& sink) { sink.OnDirective(directive); });
  cv_.NotifyAll();
  return true;
}

bool DirectiveQueue::AwaitRoom(absl::Duration timeout) {
  const absl::Time deadline = absl::Now() + timeout;
  MutexLock lock(mu_);
  while (!stopped_ && events_.size() > max_directives_ / 2) {
    const absl::Duration left = deadline - absl::Now();
    if (left <= absl::ZeroDuration()) return false;
    cv_.WaitFor(mu_, left);
  }
  return true;
}

void DirectiveQueue::Stop() {
  {
    MutexLock lock(mu_);
    stopped_ = true;
    cv_.NotifyAll();
  }
  MutexLock lock(join_mu_);
  if (thread_.joinable()) thread_.join();
}

void DirectiveQueue::Add(Event event) {
  MutexLock lock(mu_);
  events_.push_back(std::move(event));
  cv_.NotifyAll();
}

void DirectiveQueue::Run() {
  while (true) {
    Event event;
    {
      MutexLock lock(mu_);
      while (events_.empty() && !stopped_) cv_.WaitFor(mu_, absl::Hours(1));
      if (stopped_) return;
      event = std::move(events_.front());
      events_.pop_front();
      cv_.NotifyAll();
    }
    event(sink_);
  }
}

}  // namespace freshet::runtime
