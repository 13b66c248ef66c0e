#ifndef FRESHET_BASE_INTERRUPT_H_
#define FRESHET_BASE_INTERRUPT_H_

#include <signal.h>

#include <atomic>
#include <functional>
#include <thread>

namespace freshet {

// Handles Ctrl-C and SIGTERM while it lives: `act` is called on its own thread with the number of
// signals so far, starting at 1. Other threads may already be running. At most one instance per
// process.
class Interrupt {
 public:
  explicit Interrupt(std::function<void(int count)> act);
  ~Interrupt();
  Interrupt(const Interrupt&) = delete;
  Interrupt& operator=(const Interrupt&) = delete;

  int count() const { return count_; }

 private:
  std::atomic<int> count_{0};
  struct sigaction old_int_ {};
  struct sigaction old_term_ {};
  std::jthread thread_;
};

}  // namespace freshet

#endif  // FRESHET_BASE_INTERRUPT_H_
