#ifndef FRESHET_SERVICES_SANDBOX_WORKER_MECHANISM_H_
#define FRESHET_SERVICES_SANDBOX_WORKER_MECHANISM_H_

#include "absl/status/statusor.h"
#include "freshet/sandbox/v1/sandbox.pb.h"

namespace freshet::sandbox {

// What keeps programs from the files and processes of others.
enum class Mechanism {
  kLandlock,    // and the worker's supervision, by seccomp's notifications
  kNamespaces,  // mount and process namespaces of each program, for kernels that lack one of these
};

// What to use on a kernel that has Landlock and notifications, or not. Whether it allows namespaces
// shows later. FAILED_PRECONDITION: it is below `level`; the message says what is missing. Pure.
absl::StatusOr<Mechanism> ChooseMechanism(bool landlock, bool notifications,
                                          v1::WorkerStart::Level level);

}  // namespace freshet::sandbox

#endif  // FRESHET_SERVICES_SANDBOX_WORKER_MECHANISM_H_
