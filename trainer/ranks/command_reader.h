#ifndef FRESHET_TRAINER_RANKS_COMMAND_READER_H_
#define FRESHET_TRAINER_RANKS_COMMAND_READER_H_

#include <array>
#include <deque>
#include <functional>
#include <thread>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/message_socket.h"
#include "base/mutex.h"
#include "freshet/trainer/v1/rank.pb.h"
#include "trainer/ranks/relay_inbox.h"

namespace freshet {

// A thread reads rank 0's messages and separates commands to work from chunks of collective
// operations, which two threads of this rank may await, and from commands about shards.
// Thread-safe.
class CommandReader {
 public:
  // Only this object receives from `socket`, which must outlive it.
  explicit CommandReader(MessageSocket& socket);
  // Shuts the socket down.
  ~CommandReader();

  // The next command to start or to work. UNAVAILABLE: rank 0 has closed the socket.
  // DEADLINE_EXCEEDED: none came. DATA_LOSS: neither a command nor a chunk, or more commands than
  // rank 0 sends in advance.
  absl::StatusOr<trainer::v1::RankCommand> Next(absl::Duration timeout);

  // Commands to send or abort a shard go to `handler`, on the reader's thread, from now on. It must
  // not block. Empty: they are dropped.
  void SetShardHandler(std::function<void(const trainer::v1::RankCommand&)> handler)
      ABSL_LOCKS_EXCLUDED(handling_);

  RelayInbox& inbox(RelayGroup group) { return inboxes_[static_cast<size_t>(group)]; }

 private:
  absl::Status Read();
  absl::Status Keep(trainer::v1::RankCommand command);

  MessageSocket& socket_;
  std::array<RelayInbox, kNumRelayGroups> inboxes_;
  Mutex handling_;  // held while the handler runs
  std::function<void(const trainer::v1::RankCommand&)> shard_handler_ ABSL_GUARDED_BY(handling_);
  Mutex mu_;
  CondVar changed_;
  std::deque<trainer::v1::RankCommand> commands_ ABSL_GUARDED_BY(mu_);
  absl::Status ended_ ABSL_GUARDED_BY(mu_);
  std::thread thread_;
};

}  // namespace freshet

#endif  // FRESHET_TRAINER_RANKS_COMMAND_READER_H_
