#include "services/sandbox/worker/mechanism.h"

#include "base/status_macros.h"
#include "base/str_cat.h"

namespace freshet::sandbox {

absl::StatusOr<Mechanism> ChooseMechanism(bool landlock, bool notifications,
                                          v1::WorkerStart::Level level) {
  if (landlock && notifications) return Mechanism::kLandlock;
  if (level == v1::WorkerStart::LEVEL_ANY) return Mechanism::kNamespaces;
  return FailedPrecondition("the kernel has no ",
                            landlock ? "notifications of seccomp" : "Landlock",
                            "; --isolation any uses namespaces of each program instead");
}

}  // namespace freshet::sandbox
