#ifndef FRESHET_WEIGHTS_WEIGHT_SHARDS_H_
#define FRESHET_WEIGHTS_WEIGHT_SHARDS_H_

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "weights/range_sender.h"
#include "weights/weight_arena.h"

namespace freshet {

// Port: the ranks of a trainer that each hold a shard of one version and can broadcast it. Sender 0
// is the publishing process itself. Thread-safe.
class WeightShards {
 public:
  virtual ~WeightShards() = default;

  // One entry per sender, at least two: its ranges of the arena, in ascending order. Together they
  // are the arena.
  virtual const std::vector<std::vector<ByteRange>>& ranges() const = 0;
  // Equal for shards that the same processes hold, and for no others as long as these shards exist.
  virtual const void* senders() const = 0;

  // Lets `sender`, from 1, send its shard. `done` is called once, on any thread, at the end or when
  // the sender is lost: see RangeSender::Send; CANCELLED: it has left. Does not wait.
  virtual void Send(size_t sender, const std::string& backend, const SendOrder& order,
                    absl::Duration timeout, std::function<void(const absl::Status&)> done) = 0;
  // As RangeSender::Abort. A sender that is lost is passed over.
  virtual void Abort(size_t sender, const std::string& group, const std::string& reason) = 0;
};

}  // namespace freshet

#endif  // FRESHET_WEIGHTS_WEIGHT_SHARDS_H_
