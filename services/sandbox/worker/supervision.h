#ifndef FRESHET_SERVICES_SANDBOX_WORKER_SUPERVISION_H_
#define FRESHET_SERVICES_SANDBOX_WORKER_SUPERVISION_H_

#include <linux/seccomp.h>
#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <vector>

namespace freshet::sandbox {

// What a system call of a program that asks the supervisor gets.
struct CallDecision {
  int error = 0;  // 0: it is made
  const char* reason = "";
};

// Whether a program may start one more process or thread. `started`: how many it has started.
// `ended`: it is being killed. Pure.
CallDecision DecideStart(int64_t started, int64_t most, bool ended);

// Whether a program may send a signal: only to its own processes. `target` as in kill(2): a
// process, 0 for the sender's group, or -G for group G. `members`: the program's processes. Pure.
CallDecision DecideSignal(pid_t target, const std::vector<pid_t>& members);

// Whether thread `caller` may signal thread `target`: only itself, as raise() and abort() of musl
// do with tkill(2). Another thread may be any process's. Pure.
CallDecision DecideThreadSignal(pid_t target, pid_t caller);

// Answers the system calls that the filter of one program leaves to the supervisor.
class Supervision {
 public:
  // `listener` is the filter's; it must outlive this object. `members` lists the program's
  // processes.
  Supervision(int listener, int64_t max_tasks, std::function<std::vector<pid_t>()> members);

  // Answers a call that waits. The listener should be readable.
  void Answer();
  // From now on no process or thread is started.
  void EndStarts() { ended_ = true; }

 private:
  CallDecision Decide(const seccomp_notif& call);

  const int listener_;
  const int64_t max_tasks_;
  const std::function<std::vector<pid_t>()> members_;
  int64_t started_ = 0;
  bool ended_ = false;
};

}  // namespace freshet::sandbox

#endif  // FRESHET_SERVICES_SANDBOX_WORKER_SUPERVISION_H_
