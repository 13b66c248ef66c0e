#ifndef FRESHET_WEIGHTS_GRPC_WEIGHT_PULLER_H_
#define FRESHET_WEIGHTS_GRPC_WEIGHT_PULLER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
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
  PolicyVersion at_least;  // older versions are useless
  WeightLimits limits;
  absl::Duration timeout = absl::Seconds(30);          // per member
  absl::Duration silence_timeout = absl::Seconds(10);  // without a byte from the member
  std::stop_token stop;                                // ends the pull at once with CANCELLED
};

enum class TrainerPlace { kFirst, kLast };

// The order in which a late joiner asks: the engines, starting at a position drawn from `seed` so
// that joiners spread out, and the trainer (optional) at `place`; of these, those of `site` before
// all others.
std::vector<WeightMember> PullOrder(std::vector<WeightMember> engines,
                                    const std::optional<WeightMember>& trainer, TrainerPlace place,
                                    uint64_t seed, std::string_view site = {});

// Fetches the newest committed version for an engine that joined late, from the first of `sources`
// that has it. Verifies each bucket, then prepares and activates the version in `subscriber`.
// Blocks for at most `timeout` per source. `observer` may be null.
// Returns the version that is active afterwards, which is newer if a publication arrived meanwhile;
// otherwise the last source's error code with all sources' messages. NOT_FOUND: no sources.
absl::StatusOr<PolicyVersion> PullWeights(const PullOptions& options,
                                          const std::vector<WeightMember>& sources,
                                          const ChannelSource& channels,
                                          const std::shared_ptr<WeightSubscriber>& subscriber,
                                          const Clock& clock, WeightSyncObserver* observer);

}  // namespace freshet

#endif  // FRESHET_WEIGHTS_GRPC_WEIGHT_PULLER_H_
