#ifndef FRESHET_TRAINER_RANKS_JOINED_RANK_STARTER_H_
#define FRESHET_TRAINER_RANKS_JOINED_RANK_STARTER_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "trainer/ranks/joined_ranks.h"
#include "trainer/ranks/rank_links.h"

namespace freshet {

// How long a start waits for all ranks: `wanted` if there is one; otherwise the first one 2 min,
// and later ones 10 s and the time to free the memory of a former rank. Pure.
absl::Duration RankWait(bool first, int64_t state_bytes, std::optional<absl::Duration> wanted);

// Ranks that are processes on other hosts, which join this one by themselves.
class JoinedRankStarter final : public RankStarter {
 public:
  // `wait`: see RankWait.
  JoinedRankStarter(std::shared_ptr<JoinedRanks> joined, RankLinkOptions options,
                    std::optional<absl::Duration> wait = {})
      : joined_(std::move(joined)), options_(std::move(options)), wait_(wait) {}

  int Ready() const override { return static_cast<int>(joined_->Ready().size()); }
  bool HasOthers(const std::vector<trainer::v1::RankReport>& group) const override;
  std::string WaitsFor() const override;
  void Stop() override { stop_.request_stop(); }
  absl::StatusOr<std::unique_ptr<RankGroup>> Start(int ranks) override;

 private:
  const std::shared_ptr<JoinedRanks> joined_;
  const RankLinkOptions options_;
  const std::optional<absl::Duration> wait_;
  bool started_ = false;
  std::atomic<bool> waits_ = false;
  std::stop_source stop_;
};

}  // namespace freshet

#endif  // FRESHET_TRAINER_RANKS_JOINED_RANK_STARTER_H_
