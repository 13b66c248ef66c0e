#ifndef FRESHET_COLLECTIVE_COMMUNICATOR_BACKEND_H_
#define FRESHET_COLLECTIVE_COMMUNICATOR_BACKEND_H_

#include <functional>
#include <memory>
#include <stop_token>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "collective/communicator.h"

namespace freshet {

// One process's place in a new group.
struct GroupPlace {
  int rank = 0;
  int size = 1;
  std::string rendezvous;                      // of NewRendezvous
  absl::Duration timeout = absl::Seconds(30);  // of Connect; above 0
  std::stop_token stop = {};                   // may end Connect earlier, with ABORTED
  // With NCCL every call is one operation, whatever its size, and is staged as a whole. For groups
  // with ranks that call NCCL themselves.
  bool undivided = false;
  // With NCCL: host memory of its largest operation. Staging memory for it is reserved when it
  // connects: later that would wait for the GPU's work, also for that of other groups.
  int64_t staged_bytes = 0;
};

// Port: how processes form groups with one kind of communicator. Thread-safe.
class CommunicatorBackend {
 public:
  virtual ~CommunicatorBackend() = default;

  // Makes the secret by which the processes of a new group find each other. The caller need not be
  // one of them; it lives until the group has connected, and passes the secret on over channels
  // that only they can read.
  virtual absl::StatusOr<std::string> NewRendezvous() = 0;

  // Connects to the other ranks. Blocks until all have connected. Returns:
  //   INVALID_ARGUMENT: rank, size or rendezvous.
  //   UNAVAILABLE, DEADLINE_EXCEEDED: a rank has failed or has not come in time.
  //   ABORTED: `stop`. RESOURCE_EXHAUSTED: no memory for staged_bytes.
  virtual absl::StatusOr<std::unique_ptr<Communicator>> Connect(const GroupPlace& place) = 0;
};

// Returns a backend by its name, "nccl" or "gloo". UNIMPLEMENTED: this process lacks it; the
// message says what is missing.
using OpenCommunicatorBackend =
    std::function<absl::StatusOr<std::shared_ptr<CommunicatorBackend>>(const std::string& name)>;

}  // namespace freshet

#endif  // FRESHET_COLLECTIVE_COMMUNICATOR_BACKEND_H_
