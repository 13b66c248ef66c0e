#ifndef FRESHET_COLLECTIVE_CHUNKS_H_
#define FRESHET_COLLECTIVE_CHUNKS_H_

#include <algorithm>
#include <cstddef>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "base/status_macros.h"
#include "base/str_cat.h"

namespace freshet {

// INVALID_ARGUMENT unless `all` elements are one part of `own` for each rank.
inline absl::Status CheckParts(size_t all, size_t own, int ranks) {
  if (all == own * static_cast<size_t>(ranks)) return absl::OkStatus();
  return InvalidArgument("collective: ", all, " elements are not ", ranks, " parts of ", own);
}

// For Gather: on rank 0 only.
inline absl::Status CheckGather(size_t all, size_t own, int rank, int ranks) {
  if (rank == 0) return CheckParts(all, own, ranks);
  if (all == 0) return absl::OkStatus();
  return InvalidArgument("collective: only rank 0 gathers, and this is rank ", rank);
}

// A part of an operation: bytes [first, first + size) of its data, in staging buffer `slot`.
struct Chunk {
  size_t slot = 0;  // 0 or 1
  size_t first = 0;
  size_t size = 0;
};

// Runs an operation on `bytes` in chunks of at most `most`, two of them at a time: starts a chunk,
// then finishes the one before it. Stops at the first error.
inline absl::Status TwoAtATime(size_t bytes, size_t most,
                               absl::FunctionRef<absl::Status(const Chunk&)> start,
                               absl::FunctionRef<absl::Status(const Chunk&)> finish) {
  Chunk previous;
  for (size_t first = 0; first < bytes; first += most) {
    const Chunk next = {previous.slot ^ 1, first, std::min(most, bytes - first)};
    FRESHET_RETURN_IF_ERROR(start(next));
    if (first > 0) FRESHET_RETURN_IF_ERROR(finish(previous));
    previous = next;
  }
  return bytes == 0 ? absl::OkStatus() : finish(previous);
}

}  // namespace freshet

#endif  // FRESHET_COLLECTIVE_CHUNKS_H_
