#ifndef FRESHET_CLI_CLIENT_INTERRUPT_H_
#define FRESHET_CLI_CLIENT_INTERRUPT_H_

#include <signal.h>

#include <atomic>
#include <functional>
#include <thread>

namespace freshet {

// Takes Ctrl-C and SIGTERM while it lives: `act` is called, on a thread of its own, with 1 for the
// first signal, 2 for the second and so on. Other threads may run already. One at a time in a
// process.
class Interrupt {
 public:
  explicit Interrupt(std::function<void(int count)> act);
  ~Interrupt();
  Interrupt(const Interrupt&) = delete;
  Interrupt& operator=(const Interrupt&) = delete;

  // Signals so far.
  int count() const { return count_; }

 private:
  std::atomic<int> count_{0};
  struct sigaction old_int_ {};
  struct sigaction old_term_ {};
  std::jthread thread_;
};

}  // namespace freshet

#endif  // FRESHET_CLI_CLIENT_INTERRUPT_H_
