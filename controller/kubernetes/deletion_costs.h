#ifndef FRESHET_CONTROLLER_KUBERNETES_DELETION_COSTS_H_
#define FRESHET_CONTROLLER_KUBERNETES_DELETION_COSTS_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "controller/cluster/membership.h"

namespace freshet {

struct PodCost {
  std::string pod;
  int32_t cost = 0;
  bool operator==(const PodCost&) const = default;
};

// Which pods are to be told what they cost, so that a pool that shrinks gives up the engines with
// the least work: a rollout costs as many as it generates sequences. A pod is told when its cost
// has changed, at most every 10 s, and a minute after it could not be told; its name is the
// worker's. Pure but for its own state. Confined to one thread.
class DeletionCosts {
 public:
  static constexpr absl::Duration kPeriod = absl::Seconds(10);
  static constexpr absl::Duration kAfterFailure = absl::Minutes(1);
  static constexpr size_t kMostAtOnce = 16;

  // `pools`: those whose engines have a cost. Those that have waited longest come first, at most
  // kMostAtOnce. The caller says of each whether it was told.
  std::vector<PodCost> Plan(const std::vector<Member>& workers, const std::set<std::string>& pools,
                            absl::Time now);
  void Told(const PodCost& cost, absl::Time now);
  void Failed(const PodCost& cost, absl::Time now);
  // Another controller may have told them since.
  void Forget() { pods_.clear(); }

 private:
  struct Pod {
    int64_t told = -1;  // -1: nothing
    absl::Time next = absl::InfinitePast();
  };
  std::map<std::string, Pod> pods_;
};

}  // namespace freshet

#endif  // FRESHET_CONTROLLER_KUBERNETES_DELETION_COSTS_H_
