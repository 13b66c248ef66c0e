#include "base/interrupt.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <utility>

#include "base/log.h"

namespace freshet {
namespace {

// Write end of the pipe for the signal handler; -1 if there is no Interrupt.
std::atomic<int> signal_fd{-1};

extern "C" void CountSignal(int /*signal*/) {
  const int saved = errno;
  const uint64_t one = 1;
  const int fd = signal_fd.load();
  if (fd >= 0 && ::write(fd, &one, sizeof(one)) < 0) errno = saved;
  errno = saved;
}

}  // namespace

Interrupt::Interrupt(std::function<void(int)> act) {
  const int fd = ::eventfd(0, EFD_CLOEXEC | EFD_SEMAPHORE);
  FRESHET_CHECK(fd >= 0);
  signal_fd = fd;
  struct sigaction action {};
  action.sa_handler = CountSignal;
  action.sa_flags = SA_RESTART;
  sigaction(SIGINT, &action, &old_int_);
  sigaction(SIGTERM, &action, &old_term_);
  thread_ = std::jthread([this, fd, act = std::move(act)](const std::stop_token& stop) {
    uint64_t one = 0;
    while (!stop.stop_requested()) {
      if (::read(fd, &one, sizeof(one)) != sizeof(one)) continue;
      if (!stop.stop_requested()) act(++count_);
    }
  });
}

Interrupt::~Interrupt() {
  sigaction(SIGINT, &old_int_, nullptr);
  sigaction(SIGTERM, &old_term_, nullptr);
  thread_.request_stop();
  CountSignal(0);  // wakes the thread
  thread_.join();
  ::close(signal_fd.exchange(-1));
}

}  // namespace freshet
