#ifndef FRESHET_TRAINER_RANKS_RANK_GROUP_H_
#define FRESHET_TRAINER_RANKS_RANK_GROUP_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "collective/communicator.h"
#include "freshet/trainer/v1/rank.pb.h"
#include "weights/weight_shards.h"

namespace freshet {

// Of a group, once all its ranks are about to connect.
inline constexpr absl::Duration kConnectTimeout = absl::Seconds(30);
// Of a text in a rank's reports.
inline constexpr size_t kMaxTextBytes = 200;

// Rank 0's view of its group: the other ranks, started for it. Its destructor ends them. Not
// thread-safe unless noted.
class RankGroup {
 public:
  virtual ~RankGroup() = default;
  // Aborted, with the reason, as soon as another rank is known to be dead or to hang.
  virtual Communicator& communicator() = 0;
  // A second one of the same ranks, for snapshots. Null: none; then they cannot divide the state.
  virtual Communicator* background() { return nullptr; }
  // How many of the ranks share this machine's memory.
  virtual int here() const { return 1; }
  // Whether the ranks read the samples of their work from the job's store.
  virtual bool reads_samples() const { return false; }
  // Hands `work` to rank `rank` (1 ..). UNAVAILABLE or DEADLINE_EXCEEDED: the rank does not take
  // it; the group is of no use afterwards. `with_tokens` makes the same work for a rank that cannot
  // read its samples, or nothing once the work is done; it is called on any thread.
  using MakeWork = std::function<std::optional<trainer::v1::RankWork>()>;
  virtual absl::Status Send(int rank, const trainer::v1::RankWork& work,
                            MakeWork with_tokens = nullptr) = 0;
  // What the ranks have staged as shard `number`; `ranges` are those of all ranks. Null: they
  // cannot send it.
  virtual std::shared_ptr<WeightShards> Shards(int64_t number,
                                               std::vector<std::vector<ByteRange>> ranges) = 0;
  // Why a rank was lost; "" if that is not known within `timeout`.
  virtual std::string LossReason(absl::Duration timeout) = 0;
  // The last report of every other rank, in the order of the group; RankReport.rank is its number.
  // Thread-safe.
  virtual std::vector<trainer::v1::RankReport> Reports() const = 0;
};

// Port: starts ranks, as processes on this machine or on others. Not thread-safe unless noted.
class RankStarter {
 public:
  virtual ~RankStarter() = default;
  // How many further ranks could be started now.
  virtual int Ready() const = 0;
  // Whether there are some that are not in `group`.
  virtual bool HasOthers(const std::vector<trainer::v1::RankReport>& group) const = 0;
  // What Start waits for; "" if it does not. Thread-safe.
  virtual std::string WaitsFor() const { return ""; }
  // Ends the wait of Start, also of a later one, with CANCELLED. Thread-safe.
  virtual void Stop() {}
  // Starts up to `ranks` - 1 further ranks, as many as come in time, and connects to them.
  // UNAVAILABLE, with the reason: none comes, or one is lost again. CANCELLED: this process ends.
  virtual absl::StatusOr<std::unique_ptr<RankGroup>> Start(int ranks) = 0;
};

}  // namespace freshet

#endif  // FRESHET_TRAINER_RANKS_RANK_GROUP_H_
