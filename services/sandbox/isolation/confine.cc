#include "services/sandbox/isolation/confine.h"

#include <errno.h>
#include <linux/filter.h>
#include <linux/landlock.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "services/sandbox/isolation/own_namespaces.h"
#include "services/sandbox/isolation/send_descriptors.h"

using freshet::sandbox::EnterOwnNamespaces;
using freshet::sandbox::Fail;

namespace {

// Receives the message and its descriptors.
void Receive(int control, FreshetConfinement* confinement, unsigned char* filter, int* fds) {
  iovec parts[2] = {{confinement, sizeof(*confinement)}, {filter, kFreshetMaxFilterBytes}};
  alignas(cmsghdr) char space[CMSG_SPACE(sizeof(int) * kFreshetConfinementFds)];
  msghdr message{};
  message.msg_iov = parts;
  message.msg_iovlen = 2;
  message.msg_control = space;
  message.msg_controllen = sizeof(space);
  const ssize_t got = recvmsg(control, &message, MSG_CMSG_CLOEXEC);
  const cmsghdr* carried = CMSG_FIRSTHDR(&message);
  if (got < static_cast<ssize_t>(sizeof(*confinement)) || carried == nullptr ||
      carried->cmsg_type != SCM_RIGHTS ||
      carried->cmsg_len != CMSG_LEN(sizeof(int) * kFreshetConfinementFds) ||
      static_cast<uint64_t>(got) !=
          sizeof(*confinement) + confinement->filter_size + confinement->last_filter_size) {
    Fail(control, "a message that says how to confine");
  }
  char* const paths[] = {confinement->root, confinement->folder, confinement->built};
  for (char* path : paths) path[kFreshetMaxPathBytes - 1] = '\0';
  memcpy(fds, CMSG_DATA(carried), sizeof(int) * kFreshetConfinementFds);
}

void Limit(int control, __rlimit_resource resource, uint64_t value) {
  const rlimit limit{value, value};
  if (setrlimit(resource, &limit) != 0) Fail(control, "setrlimit");
}

void SendListener(int control, int listener) {
  char byte = 0;
  iovec parts[] = {{&byte, 1}};
  const int fds[] = {listener};
  if (freshet::SendDescriptors(control, parts, fds) != 1) _exit(127);
}

// Returns the descriptor of the filter's notifications, if `flags` ask for it.
long LoadFilter(unsigned char* filter, uint64_t size, unsigned long flags) {
  sock_fprog program{static_cast<unsigned short>(size / sizeof(sock_filter)),
                     reinterpret_cast<sock_filter*>(filter)};
  return syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &program);
}

// Loads the first filter, whose notifications the worker gets.
void LoadSupervisedFilter(int control, unsigned char* filter, uint64_t size) {
  // Without the second flag, which Linux 5.19 brought, a signal makes a call ask again.
  constexpr unsigned long kWaitKillable = 1UL << 5;
  long listener = LoadFilter(filter, size, SECCOMP_FILTER_FLAG_NEW_LISTENER | kWaitKillable);
  if (listener < 0 && errno == EINVAL) {
    listener = LoadFilter(filter, size, SECCOMP_FILTER_FLAG_NEW_LISTENER);
  }
  if (listener < 0) Fail(control, "seccomp");
  SendListener(control, static_cast<int>(listener));
}

}  // namespace

void FreshetConfine(int control) {
  static unsigned char filter[kFreshetMaxFilterBytes];
  FreshetConfinement confinement;
  int fds[kFreshetConfinementFds];
  Receive(control, &confinement, filter, fds);

  // Ends with the worker, or its Python process.
  if (prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) != 0) Fail(control, "PR_SET_PDEATHSIG");
  const bool separate = confinement.root[0] != '\0';
  if (separate) EnterOwnNamespaces(control, confinement);
  if (setsid() < 0) Fail(control, "setsid");
  for (int standard = 0; standard < 3; ++standard) {
    if (dup2(fds[standard], standard) < 0) Fail(control, "dup2");
  }
  if (!separate && fchdir(fds[3]) != 0) Fail(control, "fchdir");
  umask(077);
  if (confinement.address_space_bytes > 0) {
    Limit(control, RLIMIT_AS, confinement.address_space_bytes);
  }
  Limit(control, RLIMIT_CPU, confinement.cpu_seconds);
  Limit(control, RLIMIT_FSIZE, confinement.file_bytes);
  Limit(control, RLIMIT_NOFILE, 256);
  Limit(control, RLIMIT_CORE, 0);
  Limit(control, RLIMIT_MEMLOCK, 0);
  // gVisor cannot set it; the filter lacks the calls that it limits.
  if (!separate) Limit(control, RLIMIT_MSGQUEUE, 0);
  if (confinement.tasks > 0) Limit(control, RLIMIT_NPROC, confinement.tasks);
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) Fail(control, "PR_SET_NO_NEW_PRIVS");
  if (!separate && syscall(SYS_landlock_restrict_self, fds[4], 0) != 0) Fail(control, "Landlock");

  if (!separate) {
    LoadSupervisedFilter(control, filter, confinement.filter_size);
  } else if (LoadFilter(filter, confinement.filter_size, 0) != 0) {
    Fail(control, "seccomp");
  }
  if (LoadFilter(filter + confinement.filter_size, confinement.last_filter_size, 0) != 0) {
    Fail(control, "the last seccomp filter");
  }
  if (separate && send(control, "", 1, MSG_NOSIGNAL) != 1) _exit(127);
  char go = 0;
  if (recv(control, &go, 1, 0) != 1) _exit(127);
  // The program must not answer its own notifications.
  if (syscall(SYS_close_range, 3U, ~0U, 0U) != 0) _exit(127);
}
