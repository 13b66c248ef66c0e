#ifndef FRESHET_SERVICES_SANDBOX_ISOLATION_CONFINE_H_
#define FRESHET_SERVICES_SANDBOX_ISOLATION_CONFINE_H_

#include <stdint.h>

// The part of the sandbox that runs in the program's own process before the program. Used by the
// worker and, as a shared library, by its Python process. Depends on the C library only.

extern "C" {

enum { kFreshetMaxPathBytes = 512 };  // with the zero at the end

// What the worker sends over the control socket, followed by two seccomp filters, arrays of struct
// sock_filter, of so many bytes. The message carries descriptors: standard input, output and error,
// the working folder, and a Landlock ruleset, or anything if `root` is given.
struct FreshetConfinement {
  uint64_t address_space_bytes;  // 0: no limit
  uint64_t cpu_seconds;
  uint64_t file_bytes;
  uint64_t tasks;             // of the user, or of its namespace where the kernel counts so; 0: any
  uint64_t filter_size;       // of the first filter, whose notifications the worker answers
  uint64_t last_filter_size;  // of the second one
  // Instead of Landlock and notifications, for kernels without them: absolute paths. The program
  // gets namespaces of its own, in which `root` (MakeRootFolder) is the root, with `folder` as its
  // working folder, kProgramFolder, and `built`, if not "", as kBuiltFolder.
  char root[kFreshetMaxPathBytes];  // "": Landlock and notifications
  char folder[kFreshetMaxPathBytes];
  char built[kFreshetMaxPathBytes];
};
enum { kFreshetConfinementFds = 5 };
enum { kFreshetMaxFilterBytes = 65536 };  // of both

// Confines this process for good, as the message on `control` says, and closes all descriptors but
// 0, 1 and 2. Answers with the descriptor of the first filter's notifications, and returns after
// the next message of one byte. If anything fails, answers with a text that says what, and ends the
// process. Only for a process with one thread.
// With `root`, it answers with a zero byte, returns in a grandchild, which answers with a second
// zero byte, and ends this process as that one ends.
void FreshetConfine(int control);
}

#endif  // FRESHET_SERVICES_SANDBOX_ISOLATION_CONFINE_H_
