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
// have one to rank 0. Thread-safe; one thread may send while another one receives.
class RelayLinks {
 public:
  virtual ~RelayLinks() = default;
  // UNAVAILABLE: the other side is gone; DEADLINE_EXCEEDED: it does not take `bytes` in time.
  virtual absl::Status Send(int rank, std::string bytes, absl::Duration timeout) = 0;
  // Waits for the next bytes. The same errors.
  virtual absl::StatusOr<std::string> Receive(int rank, absl::Duration timeout) = 0;
  // Ends all connections, and calls in progress. Idempotent.
  virtual void Close() = 0;
};

// A communicator whose operations pass through rank 0: it adds up the ranks' numbers and sends
// every rank the sum. For connections that exist and are secured anyway, and few ranks: rank 0
// receives and sends the data of all others. Links are closed after an error. Memory: chunks of
// 1 MiB. `links` may be null for a single rank.
std::unique_ptr<Communicator> MakeRelayCommunicator(int rank, int size,
                                                    std::shared_ptr<RelayLinks> links);

}  // namespace freshet

#endif  // FRESHET_COLLECTIVE_RELAY_COMMUNICATOR_H_
