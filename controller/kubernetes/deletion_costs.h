#ifndef FRESHET_CONTROLLER_KUBERNETES_DELETION_COSTS_H_
#define FRESHET_CONTROLLER_KUBERNETES_DELETION_COSTS_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "controller/cluster/membership.h"

namespace freshet {

struct PodCost {
  std::string pod;
  int32_t cost = 0;
  bool operator==(const PodCost&) const = default;
};

// Plans updates of pods' deletion costs, so that a shrinking pool loses the engines with the least
// work: the cost of a rollout is the number of sequences that it generates. A pod is updated if its
// cost has changed, at most every 10 s, and one minute after a failed update. Pod names equal
// worker names. No I/O. Not thread-safe.
class DeletionCosts {
 public:
  static constexpr absl::Duration kPeriod = absl::Seconds(10);
  static constexpr absl::Duration kAfterFailure = absl::Minutes(1);
  static constexpr size_t kMostAtOnce = 16;

  // `pools`: those whose engines have a cost. Returns at most kMostAtOnce updates, those that have
  // waited longest first. The caller reports each successful update by Told.
  std::vector<PodCost> Plan(const std::vector<Member>& workers, const std::set<std::string>& pools,
                            absl::Time now);
  void Told(const PodCost& cost, absl::Time now);
  void Failed(const PodCost& cost, absl::Time now);
  // Another controller may have updated them since.
  void Forget() { pods_.clear(); }

 private:
  struct Pod {
    int64_t told = -1;  // -1: never
    absl::Time next = absl::InfinitePast();
  };
  std::map<std::string, Pod> pods_;
};

}  // namespace freshet

#endif  // FRESHET_CONTROLLER_KUBERNETES_DELETION_COSTS_H_
