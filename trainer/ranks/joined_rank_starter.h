#ifndef FRESHET_TRAINER_RANKS_JOINED_RANK_STARTER_H_
#define FRESHET_TRAINER_RANKS_JOINED_RANK_STARTER_H_

#include <atomic>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "trainer/ranks/joined_ranks.h"
#include "trainer/ranks/rank_links.h"

namespace freshet {

// Ranks that are processes on other hosts, which join this one by themselves. The first start waits
// 2 min for all of them; later ones wait 10 s, and the time to free a rank's memory, for former
// ranks and replacements.
class JoinedRankStarter final : public RankStarter {
 public:
  JoinedRankStarter(std::shared_ptr<JoinedRanks> joined, RankLinkOptions options)
      : joined_(std::move(joined)), options_(std::move(options)) {}

  int Ready() const override { return static_cast<int>(joined_->Ready().size()); }
  bool HasOthers(const std::vector<trainer::v1::RankReport>& group) const override;
  std::string WaitsFor() const override;
  absl::StatusOr<std::unique_ptr<RankGroup>> Start(int ranks) override;

 private:
  const std::shared_ptr<JoinedRanks> joined_;
  const RankLinkOptions options_;
  bool started_ = false;
  std::atomic<bool> waits_ = false;
};

}  // namespace freshet

#endif  // FRESHET_TRAINER_RANKS_JOINED_RANK_STARTER_H_
