#ifndef FRESHET_COLLECTIVE_COMMUNICATOR_H_
#define FRESHET_COLLECTIVE_COMMUNICATOR_H_

#include <cstddef>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace freshet {

// Collective operations of a fixed group of ranks, numbered from 0. All ranks call the same
// operations in the same order with the same sizes. An operation blocks until its result is there.
// All data is in host memory, or with NCCL in that of the GPU.
//
// Errors:
//   UNAVAILABLE: a rank is gone.
//   DEADLINE_EXCEEDED: `timeout`, counted from this rank's call, has passed. The other ranks must
//     therefore call within `timeout` too.
//   ABORTED: Abort().
//   RESOURCE_EXHAUSTED: no memory for staging buffers.
//   INVALID_ARGUMENT: a root or sizes that do not fit; nothing was sent.
// After any error except INVALID_ARGUMENT, output buffers are unspecified and every later operation
// returns that error; connect a new group.
//
// Operations are called by one thread at a time; Abort and error are thread-safe.
class Communicator {
 public:
  virtual ~Communicator() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;

  // Copies `data` of rank `root`, where it is only read, to all ranks.
  virtual absl::Status Broadcast(std::span<std::byte> data, int root, absl::Duration timeout) = 0;
  // Replaces `data` by its sum over all ranks, with the same bits on each.
  virtual absl::Status AllReduce(std::span<float> data, absl::Duration timeout) = 0;
  // `data` has size() parts of equal length. `own` becomes the sum over all ranks of part rank().
  virtual absl::Status ReduceScatter(std::span<const float> data, std::span<float> own,
                                     absl::Duration timeout) = 0;
  // `all` becomes the concatenation of every rank's `own`, by rank.
  virtual absl::Status AllGather(std::span<const std::byte> own, std::span<std::byte> all,
                                 absl::Duration timeout) = 0;
  // As AllGather, but only rank 0 gets the result; `all` is empty on the others.
  virtual absl::Status Gather(std::span<const std::byte> own, std::span<std::byte> all,
                              absl::Duration timeout) = 0;
  // Returns when all ranks have called it.
  virtual absl::Status Barrier(absl::Duration timeout) = 0;

  // Ends the operation in progress and all later ones with ABORTED and `reason`, on this rank.
  // Others notice by UNAVAILABLE or their deadline.
  virtual void Abort(const std::string& reason) = 0;
  // The error that later operations return; OK while the group works. Also finds out errors between
  // operations where the transport reports them.
  virtual absl::Status error() = 0;
};

}  // namespace freshet

#endif  // FRESHET_COLLECTIVE_COMMUNICATOR_H_
