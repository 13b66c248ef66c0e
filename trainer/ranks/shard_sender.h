#ifndef FRESHET_TRAINER_RANKS_SHARD_SENDER_H_
#define FRESHET_TRAINER_RANKS_SHARD_SENDER_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "collective/communicator_backend.h"
#include "freshet/trainer/v1/rank.pb.h"
#include "weights/range_sender.h"
#include "weights/weight_arena.h"
#include "weights/weight_buffer_pool.h"

namespace freshet {

// Broadcasts a rank's shards of versions to engines, on a thread of its own. Keeps the two newest
// shards: the published one, and the next. Thread-safe.
class ShardSender {
 public:
  // `on_sent` is called with the result of each Send, on the sender's thread.
  ShardSender(OpenCommunicatorBackend open, const Clock& clock,
              std::function<void(const trainer::v1::ShardSent&)> on_sent);
  // Aborts the broadcast in progress.
  ~ShardSender();

  // Keeps shard `number`: `copy` writes the bytes of the ranges, one after the other.
  // RESOURCE_EXHAUSTED: out of memory; or errors of `copy`. Then the shard is not kept.
  absl::Status Stage(int64_t number, const std::vector<ByteRange>& ranges,
                     absl::FunctionRef<absl::Status(std::span<std::byte>)> copy)
      ABSL_LOCKS_EXCLUDED(mu_);
  // Starts to send, after the former Send, and once the shard is staged. Does not block. Results:
  // errors of the backend and of RangeSender; NOT_FOUND: the shard is not kept; RESOURCE_EXHAUSTED:
  // two others wait.
  void Send(const trainer::v1::SendShard& order) ABSL_LOCKS_EXCLUDED(mu_);
  // As RangeSender::Abort.
  void Abort(const trainer::v1::AbortShard& order) { sender_.Abort(order.group(), order.reason()); }

 private:
  struct Shard {
    int64_t number = 0;
    std::vector<int64_t> sizes;  // of its ranges
    std::shared_ptr<const WeightBuffer> bytes;
  };

  void Run() ABSL_LOCKS_EXCLUDED(mu_);
  absl::StatusOr<Shard> AwaitShard(int64_t number, absl::Time deadline) ABSL_LOCKS_EXCLUDED(mu_);
  absl::Status SendNow(const trainer::v1::SendShard& order) ABSL_LOCKS_EXCLUDED(mu_);
  void Answer(int64_t id, const absl::Status& status) const;

  const OpenCommunicatorBackend open_;
  const Clock& clock_;
  const std::function<void(const trainer::v1::ShardSent&)> on_sent_;
  WeightBufferPool pool_;
  RangeSender sender_;
  // Of the thread.
  std::string backend_name_;
  std::shared_ptr<CommunicatorBackend> backend_;

  Mutex mu_;
  CondVar changed_;
  std::deque<Shard> shards_ ABSL_GUARDED_BY(mu_);
  int64_t newest_ ABSL_GUARDED_BY(mu_) = 0;  // shard that was staged or could not be
  std::deque<trainer::v1::SendShard> orders_ ABSL_GUARDED_BY(mu_);
  std::vector<int64_t> refused_ ABSL_GUARDED_BY(mu_);  // ids of orders
  std::string sending_ ABSL_GUARDED_BY(mu_);           // the group of the broadcast in progress
  bool ends_ ABSL_GUARDED_BY(mu_) = false;
  std::thread thread_;
};

}  // namespace freshet

#endif  // FRESHET_TRAINER_RANKS_SHARD_SENDER_H_
