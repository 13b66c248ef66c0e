#ifndef FRESHET_COLLECTIVE_GLOO_COMMUNICATOR_H_
#define FRESHET_COLLECTIVE_GLOO_COMMUNICATOR_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "collective/communicator.h"

namespace freshet {

struct GlooOptions {
  int rank = 0;
  int size = 1;
  // A file that the ranks of this group alone share, through which they find each other; created by
  // the first one. A new group needs a new file.
  std::string rendezvous_file;
  std::shared_ptr<const void> file_owner;  // released when the file is not used any more
  // Address or name of this rank's interface. Connections between ranks are neither encrypted nor
  // authorized.
  std::string host = "127.0.0.1";
  absl::Duration connect_timeout = absl::Seconds(30);
};

// Connects to the other ranks over TCP, with c10d's ProcessGroupGloo. Blocks until all have come.
// The process ignores SIGPIPE from then on: Gloo's writes to a rank that has died raise it.
// Memory: two buffers of 4 MiB; 2 * size times that in ReduceScatter, size + 1 times in AllGather.
// Returns:
//   INVALID_ARGUMENT: rank or size.
//   UNAVAILABLE: the interface, the file or another rank cannot be reached in time.
absl::StatusOr<std::unique_ptr<Communicator>> ConnectGloo(const GlooOptions& options);

}  // namespace freshet

#endif  // FRESHET_COLLECTIVE_GLOO_COMMUNICATOR_H_
