#include "services/sandbox/worker/supervision.h"

#include <sys/ioctl.h>
#include <sys/syscall.h>

#include <algorithm>
#include <cerrno>
#include <utility>

namespace freshet::sandbox {

CallDecision DecideStart(int64_t started, int64_t most, bool ended) {
  if (ended) return {EAGAIN, "the program is being ended"};
  if (started >= most) return {EAGAIN, "the program has started as many as it may"};
  return {};
}

CallDecision DecideSignal(pid_t target, const std::vector<pid_t>& members) {
  if (target == 0) return {};  // programs have sessions of their own
  // -1 is every process that the user may signal.
  const int64_t process = target < -1 ? -int64_t{target} : target;
  if (std::ranges::find(members, process) != members.end()) return {};
  return {EPERM, "not a process of the program"};
}

CallDecision DecideThreadSignal(pid_t target, pid_t caller) {
  if (target == caller) return {};
  return {ENOSYS, "not supported"};
}

Supervision::Supervision(int listener, int64_t max_tasks,
                         std::function<std::vector<pid_t>()> members)
    : listener_(listener), max_tasks_(max_tasks), members_(std::move(members)) {}

CallDecision Supervision::Decide(const seccomp_notif& call) {
  const auto argument = [&call](int i) { return static_cast<pid_t>(call.data.args[i]); };
  switch (call.data.nr) {
    case SYS_clone:
    case SYS_fork:
    case SYS_vfork: {
      const CallDecision decision = DecideStart(started_, max_tasks_, ended_);
      if (decision.error == 0) ++started_;
      return decision;
    }
    case SYS_kill:
      return DecideSignal(argument(0), members_());
    case SYS_tgkill: {
      const CallDecision decision = DecideSignal(argument(0), members_());
      return argument(0) > 0 ? decision : CallDecision{EINVAL, "not a process"};
    }
    case SYS_tkill:
      return DecideThreadSignal(argument(0), static_cast<pid_t>(call.pid));
    default:
      // The filter asks about no other call.
      return {ENOSYS, "not supported"};
  }
}

void Supervision::Answer() {
  seccomp_notif call{};
  if (::ioctl(listener_, SECCOMP_IOCTL_NOTIF_RECV, &call) != 0) return;  // its process has ended
  const CallDecision decision = Decide(call);
  seccomp_notif_resp answer{};
  answer.id = call.id;
  if (decision.error == 0) {
    answer.flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE;
  } else {
    answer.error = -decision.error;
  }
  (void)::ioctl(listener_, SECCOMP_IOCTL_NOTIF_SEND, &answer);
}

}  // namespace freshet::sandbox
