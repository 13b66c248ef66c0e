#ifndef FRESHET_TRAINER_RANKS_RANK_LINKS_H_
#define FRESHET_TRAINER_RANKS_RANK_LINKS_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/unique_fd.h"
#include "collective/communicator_backend.h"
#include "trainer/ranks/rank_group.h"

namespace freshet {

// A process at the other end of a link. Thread-safe.
class RankPeer {
 public:
  virtual ~RankPeer() = default;
  // Ends it, if that is up to this process.
  virtual void Kill() {}
  // After Kill: how it ended, such as "was ended by signal 9".
  virtual std::string Ending() { return "is gone"; }
};

// A rank that runs RunRank behind `socket`.
struct RankLink {
  int number = 0;  // the process's --rank, for messages
  UniqueFd socket;
  std::unique_ptr<RankPeer> peer;
};

struct RankLinkOptions {
  // What all of them get.
  trainer::v1::RankStart start;
  // Of the group and of the second one, for snapshots: `start` has their names. Null: collective
  // operations pass through the links.
  std::shared_ptr<CommunicatorBackend> backend, background_backend;
  bool divides_state = false;  // otherwise a backend connects no second group
  int64_t state_bytes = 0;     // that a rank allocates and fills before it joins
  absl::Duration start_timeout = absl::Seconds(60);  // without that
  // A rank that sends no report for so long counts as hung and is killed.
  absl::Duration silence = absl::Seconds(5);
  // Called with the number of a rank that is lost, on any thread. May be empty.
  std::function<void(int number)> on_loss;
};

// Starts the ranks behind `links` as ranks 1 .. and connects to them. The group's destructor closes
// the links and kills the peers. UNAVAILABLE: one is lost or does not come.
absl::StatusOr<std::unique_ptr<RankGroup>> ConnectRanks(std::vector<RankLink> links,
                                                        const RankLinkOptions& options);

}  // namespace freshet

#endif  // FRESHET_TRAINER_RANKS_RANK_LINKS_H_
