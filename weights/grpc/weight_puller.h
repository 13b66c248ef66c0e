#ifndef FRESHET_WEIGHTS_GRPC_WEIGHT_PULLER_H_
#define FRESHET_WEIGHTS_GRPC_WEIGHT_PULLER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "weights/grpc/channel_source.h"
#include "weights/manifest.h"
#include "weights/weight_member.h"
#include "weights/weight_subscriber.h"
#include "weights/weight_sync_observer.h"

namespace freshet {

struct PullOptions {
  std::string job;
  PolicyVersion at_least;  // older versions are of no use
  WeightLimits limits;
  absl::Duration timeout = absl::Seconds(30);          // for one member
  absl::Duration silence_timeout = absl::Seconds(10);  // without a byte from it
  std::stop_token stop;                                // ends the pull at once: CANCELLED
};

enum class TrainerPlace { kFirst, kLast };

// The order in which a joiner asks: the engines, beginning at a place drawn from `seed` so that
// many joiners do not ask the same one, and the trainer (may be absent) where `place` says.
std::vector<WeightMember> PullOrder(std::vector<WeightMember> engines,
                                    const std::optional<WeightMember>& trainer, TrainerPlace place,
                                    uint64_t seed);

// Brings an engine that joined late the newest committed version of the first of `sources` that can
// give it: verified bucket by bucket, then prepared and activated in `subscriber`. Blocks, for at
// most `timeout` per source. `observer` may be null.
// Returns the version that is active afterwards, which is newer when a publication came in between;
// else the code of the last source, and what every source said. NOT_FOUND when there is no source.
absl::StatusOr<PolicyVersion> PullWeights(const PullOptions& options,
                                          const std::vector<WeightMember>& sources,
                                          const ChannelSource& channels,
                                          const std::shared_ptr<WeightSubscriber>& subscriber,
                                          const Clock& clock, WeightSyncObserver* observer);

}  // namespace freshet

#endif  // FRESHET_WEIGHTS_GRPC_WEIGHT_PULLER_H_
