#ifndef FRESHET_COLLECTIVE_RELAY_COMMUNICATOR_H_
#define FRESHET_COLLECTIVE_RELAY_COMMUNICATOR_H_

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "collective/communicator.h"

namespace freshet {

// Port: a rank's connections, in order and reliable. Rank 0 has one to every other rank, the others
// have one to rank 0. One thread may send while another one receives; any thread may call Close.
class RelayLinks {
 public:
  virtual ~RelayLinks() = default;
  // UNAVAILABLE: the other side is gone; DEADLINE_EXCEEDED: it does not take `bytes` in time.
  virtual absl::Status Send(int rank, std::string bytes, absl::Duration timeout) = 0;
  // Returns the next bytes. UNAVAILABLE: the other side is gone, or Close was called;
  // DEADLINE_EXCEEDED: none within `timeout`.
  virtual absl::StatusOr<std::string> Receive(int rank, absl::Duration timeout) = 0;
  // No operation follows. May end a Receive in progress; the owner closes the connections.
  // Idempotent.
  virtual void Close() = 0;
};

// A communicator whose operations pass through rank 0, which adds the ranks' data in the order of
// their ranks and sends every rank the sum. For few ranks with existing, secured connections: rank
// 0 receives and sends the data of all others, in chunks of 1 MiB. Calls links->Close() after an
// error and on destruction.
std::unique_ptr<Communicator> MakeRelayCommunicator(int rank, int size,
                                                    std::shared_ptr<RelayLinks> links);

}  // namespace freshet

#endif  // FRESHET_COLLECTIVE_RELAY_COMMUNICATOR_H_
