#include "trainer/checkpoint/checkpoint_retention.h"

#include <algorithm>
#include <tuple>

namespace freshet {

std::set<int64_t> VersionsToKeep(const std::vector<HeldCheckpoint>& held,
                                 const CheckpointRetention& rule) {
  std::set<int64_t> keep = rule.pinned;
  std::vector<HeldCheckpoint> scored;
  int64_t newest = 0, awaited = 0;
  for (const HeldCheckpoint& checkpoint : held) {
    const int64_t version = checkpoint.version;
    if (newest++ < rule.last) keep.insert(version);
    if (rule.every > 0 && version > 0 && version % rule.every == 0) keep.insert(version);
    if (rule.best == 0) continue;
    if (checkpoint.score.has_value()) {
      scored.push_back(checkpoint);
    } else if (scored.empty() && version % rule.evaluate_every == 0 &&
               awaited++ < kMostAwaitedScores) {
      keep.insert(version);
    }
  }
  std::sort(scored.begin(), scored.end(), [](const HeldCheckpoint& a, const HeldCheckpoint& b) {
    return std::tie(a.score, a.version) > std::tie(b.score, b.version);
  });
  for (size_t i = 0; i < scored.size() && static_cast<int64_t>(i) < rule.best; ++i) {
    keep.insert(scored[i].version);
  }
  return keep;
}

}  // namespace freshet
