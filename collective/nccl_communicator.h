#ifndef FRESHET_COLLECTIVE_NCCL_COMMUNICATOR_H_
#define FRESHET_COLLECTIVE_NCCL_COMMUNICATOR_H_

#include <cstddef>
#include <memory>
#include <stop_token>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "collective/communicator.h"
#include "collective/nccl_library.h"

namespace freshet {

// The secret by which the ranks of a group find each other: made by one of them, and given to the
// others over a channel that only they can read. INTERNAL: NCCL's error.
absl::StatusOr<NcclUniqueId> MakeNcclUniqueId(const NcclLibrary& library);

struct NcclOptions {
  int rank = 0;
  int size = 1;
  NcclUniqueId id;
  int device = 0;  // CUDA's number of the GPU
  // The most that a buffer in the GPU's memory stages; larger data is divided, over two of them.
  // The same for all ranks. Data in the GPU's memory is not staged, except by Gather.
  size_t operation_bytes = size_t{32} << 20;
  size_t staged_bytes = 0;  // for which memory is reserved at once
  absl::Duration connect_timeout = absl::Seconds(60);
  std::stop_token stop;  // ends the connecting with ABORTED
};

// Connects to the other ranks with NCCL. Blocks until all have come. Operations also take data in
// the memory of GPU `device`: they begin when the device's default stream has computed what it has
// been given so far. Input and output of an operation must then both be there. Communicators are
// non-blocking: this thread asks NCCL for its progress, and ends it with ncclCommAbort at a
// deadline. If that does not return within a minute, the process ends with kExitInternal, because
// the GPU may still write to the caller's memory.
//
// Returns:
//   INVALID_ARGUMENT: rank or size.
//   UNAVAILABLE: NCCL's error, or another rank has failed.
//   DEADLINE_EXCEEDED: another rank has not come in time.
//   ABORTED: `stop`.
absl::StatusOr<std::unique_ptr<Communicator>> ConnectNccl(
    std::shared_ptr<const NcclLibrary> library, const NcclOptions& options);

}  // namespace freshet

#endif  // FRESHET_COLLECTIVE_NCCL_COMMUNICATOR_H_
