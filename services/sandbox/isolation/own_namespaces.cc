#include "services/sandbox/isolation/own_namespaces.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "services/sandbox/isolation/root_paths.h"

namespace freshet::sandbox {
namespace {

void WriteMap(int control, const char* path, const char* text) {
  const int file = open(path, O_WRONLY | O_CLOEXEC);
  const size_t size = strlen(text);
  if (file < 0 || write(file, text, size) != static_cast<ssize_t>(size)) Fail(control, path);
  close(file);
}

// Mounts `source` at `root` + `place`. Its own flags must stay: a user namespace may not clear
// them.
void Bind(int control, const char* source, const char* root, const char* place,
          unsigned long flags) {
  char target[kFreshetMaxPathBytes + 32];
  snprintf(target, sizeof(target), "%s%s", root, place);
  struct statvfs about {};
  if (mount(source, target, nullptr, MS_BIND, nullptr) != 0 || statvfs(target, &about) != 0 ||
      mount(nullptr, target, nullptr,
            MS_REMOUNT | MS_BIND | MS_NOSUID | MS_NODEV | flags | KeptMountFlags(about.f_flag),
            nullptr) != 0) {
    Fail(control, place);
  }
}

void ChangeRoot(int control, const FreshetConfinement& confinement) {
  const char* root = confinement.root;
  if (mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) Fail(control, "MS_PRIVATE");
  // A mount of this namespace's own, else it cannot become the root.
  if (mount(root, root, nullptr, MS_BIND | MS_REC, nullptr) != 0) Fail(control, "the root folder");
  Bind(control, confinement.folder, root, kProgramFolder, 0);
  if (confinement.built[0] != '\0') {
    Bind(control, confinement.built, root, kBuiltFolder, MS_RDONLY);
  }
  if (chdir(root) != 0 || syscall(SYS_pivot_root, ".", kOldRoot + 1) != 0) {
    Fail(control, "pivot_root");
  }
  if (umount2(kOldRoot, MNT_DETACH) != 0) Fail(control, "leaving the old root");
  if (chdir(kProgramFolder) != 0) Fail(control, kProgramFolder);
}

void DropCapabilities(int control) {
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct none[_LINUX_CAPABILITY_U32S_3] = {};
  if (syscall(SYS_capset, &header, none) != 0) Fail(control, "capset");
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) Fail(control, "PR_SET_NO_NEW_PRIVS");
  // A change of user namespace or capabilities may have reset it.
  if (prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) != 0) Fail(control, "PR_SET_PDEATHSIG");
}

// Keeps one descriptor, as descriptor 0.
void CloseAllBut(int descriptor) {
  if (dup2(descriptor, 0) < 0 || syscall(SYS_close_range, 1U, ~0U, 0U) != 0) _exit(127);
}

// In the first process of a namespace: ends all others.
void EndOthers(int) { kill(-1, SIGKILL); }

// The first process of the namespace: adopts orphans, until the program has ended. Then it ends the
// others and waits for them, as gVisor does not.
[[noreturn]] void BeFirst(pid_t program, int end) {
  CloseAllBut(end);
  int status = 0;
  for (int last = 0; true;) {
    const pid_t ended = waitpid(-1, &last, 0);
    if (ended < 0 && errno != EINTR) _exit(127);
    if (ended != program) continue;
    status = last;
    break;
  }
  while (true) {
    EndOthers(SIGTERM);
    if (waitpid(-1, nullptr, 0) < 0 && errno != EINTR) break;
  }
  _exit(write(0, &status, sizeof(status)) == sizeof(status) ? 0 : 127);
}

[[noreturn]] void EndAs(int status) {
  if (WIFEXITED(status)) _exit(WEXITSTATUS(status));
  const int number = WTERMSIG(status);
  sigset_t all;
  sigfillset(&all);
  signal(number, SIG_DFL);
  sigprocmask(SIG_UNBLOCK, &all, nullptr);
  kill(getpid(), number);
  _exit(128 + number);
}

// Waits for the first process; then ends as the program has.
[[noreturn]] void EndAsProgram(pid_t first, int end) {
  CloseAllBut(end);
  int status = 0;
  if (read(0, &status, sizeof(status)) != sizeof(status)) status = SIGKILL;  // all were killed
  while (waitpid(first, nullptr, 0) < 0 && errno == EINTR) {
  }
  EndAs(status);
}

}  // namespace

void Fail(int control, const char* what) {
  char text[200];
  const int size = snprintf(text, sizeof(text), "%s: %s", what, strerror(errno));
  (void)!send(control, text, static_cast<size_t>(size), MSG_NOSIGNAL);
  _exit(127);
}

void EnterOwnNamespaces(int control, const FreshetConfinement& confinement) {
  const unsigned user = geteuid();
  const unsigned group = getegid();
  if (send(control, "", 1, MSG_NOSIGNAL) != 1) _exit(127);
  if (unshare(CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNS | CLONE_NEWNET | CLONE_NEWIPC |
              CLONE_NEWUTS) != 0) {
    Fail(control, "unshare");
  }
  char map[64];
  WriteMap(control, "/proc/self/setgroups", "deny");
  snprintf(map, sizeof(map), "%u %u 1", user, user);
  WriteMap(control, "/proc/self/uid_map", map);
  snprintf(map, sizeof(map), "%u %u 1", group, group);
  WriteMap(control, "/proc/self/gid_map", map);
  ChangeRoot(control, confinement);
  DropCapabilities(control);
  const rlimit none{0, 0};
  if (setrlimit(RLIMIT_CORE, &none) != 0) Fail(control, "setrlimit");
  int end[2];
  if (pipe2(end, O_CLOEXEC) != 0) Fail(control, "pipe2");
  const pid_t first = fork();
  if (first < 0) Fail(control, "fork");
  if (first > 0) {
    close(end[1]);
    EndAsProgram(first, end[0]);
  }
  if (prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) != 0) Fail(control, "PR_SET_PDEATHSIG");
  if (getpid() != 1 || setsid() != 1) {
    errno = EPERM;
    Fail(control, "a process namespace");
  }
  if (signal(SIGTERM, EndOthers) == SIG_ERR) Fail(control, "signal");
  const pid_t program = fork();
  if (program < 0) Fail(control, "fork");
  if (program > 0) BeFirst(program, end[1]);
  signal(SIGTERM, SIG_DFL);
}

}  // namespace freshet::sandbox
