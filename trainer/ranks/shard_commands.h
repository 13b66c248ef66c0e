#ifndef FRESHET_TRAINER_RANKS_SHARD_COMMANDS_H_
#define FRESHET_TRAINER_RANKS_SHARD_COMMANDS_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <thread>
#include <utility>

#include "absl/status/status.h"
#include "base/mutex.h"
#include "freshet/trainer/v1/rank.pb.h"

namespace freshet {

// Rank 0's commands about shards to one other rank. They are sent on a thread of their own, because
// the link may be busy with a collective operation. Thread-safe.
class ShardCommands {
 public:
  using Done = std::function<void(const absl::Status&)>;

  // `send` sends one command over the link; it may block.
  explicit ShardCommands(std::function<absl::Status(const trainer::v1::RankCommand&)> send)
      : send_(std::move(send)) {}
  ~ShardCommands() { Stop(); }

  // `done` is called once, with the rank's result or the error of Fail. RESOURCE_EXHAUSTED: too
  // many commands wait for the link.
  void Send(trainer::v1::SendShard order, Done done) ABSL_LOCKS_EXCLUDED(mu_);
  void Abort(trainer::v1::AbortShard order) ABSL_LOCKS_EXCLUDED(mu_);

  // The rank's result of a command.
  void End(const trainer::v1::ShardSent& sent);
  // The link is of no use any more: ends all commands, and those that come later.
  void Fail(const absl::Status& error) ABSL_LOCKS_EXCLUDED(mu_);
  // As Fail, with CANCELLED, and waits for the thread. Afterwards `done`s are called by Send alone.
  // `send` must not block any more.
  void Stop() ABSL_LOCKS_EXCLUDED(mu_);

 private:
  // OK, or the reason why it is not sent.
  absl::Status PostLocked(trainer::v1::RankCommand command) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void End(int64_t id, const absl::Status& status) ABSL_LOCKS_EXCLUDED(mu_);
  void Run() ABSL_LOCKS_EXCLUDED(mu_);

  const std::function<absl::Status(const trainer::v1::RankCommand&)> send_;
  Mutex mu_;
  CondVar changed_;
  int64_t ids_ ABSL_GUARDED_BY(mu_) = 0;
  std::map<int64_t, Done> pending_ ABSL_GUARDED_BY(mu_);  // by id
  std::deque<trainer::v1::RankCommand> commands_ ABSL_GUARDED_BY(mu_);
  absl::Status failed_ ABSL_GUARDED_BY(mu_);
  std::thread thread_ ABSL_GUARDED_BY(mu_);  // from the first command on
};

}  // namespace freshet

#endif  // FRESHET_TRAINER_RANKS_SHARD_COMMANDS_H_
