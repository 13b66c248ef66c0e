#include "trainer/ranks/joined_rank_starter.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "base/log.h"
#include "base/str_cat.h"

namespace freshet {
namespace {

constexpr absl::Duration kFirstWait = absl::Minutes(2);
constexpr absl::Duration kLaterWait = absl::Seconds(10);  // and a second per GB of state

}  // namespace

absl::Duration RankWait(bool first, int64_t state_bytes, std::optional<absl::Duration> wanted) {
  if (wanted.has_value()) return *wanted;
  return first ? kFirstWait : kLaterWait + absl::Nanoseconds(state_bytes);
}

bool JoinedRankStarter::HasOthers(const std::vector<trainer::v1::RankReport>& group) const {
  return std::ranges::any_of(joined_->Ready(), [&group](int number) {
    return std::ranges::find(group, number, &trainer::v1::RankReport::rank) == group.end();
  });
}

std::string JoinedRankStarter::WaitsFor() const {
  return waits_ ? StrCat("ranks to join: ", joined_->Missing()) : "";
}

absl::StatusOr<std::unique_ptr<RankGroup>> JoinedRankStarter::Start(int ranks) {
  const absl::Duration wait = RankWait(!started_, options_.state_bytes, wait_);
  started_ = true;
  if (Ready() < ranks - 1) {
    FRESHET_LOG(Info) << "event=ranks_awaited missing=" << LogQuoted(joined_->Missing())
                      << " wait=" << absl::FormatDuration(wait);
  }
  std::vector<RankLink> links;
  waits_ = true;
  std::vector<JoinedRanks::Rank> joined = joined_->Take(ranks - 1, wait, stop_.get_token());
  waits_ = false;
  for (JoinedRanks::Rank& rank : joined) {
    links.push_back({rank.number, std::move(rank.socket), std::make_unique<RankPeer>()});
  }
  if (joined_->stopped() || stop_.stop_requested()) return absl::CancelledError("the trainer ends");
  if (links.empty()) {
    return StatusOf(absl::StatusCode::kUnavailable, "no rank has joined in ",
                    absl::FormatDuration(wait), "; missing: ", joined_->Missing());
  }
  RankLinkOptions options = options_;
  options.on_loss = [joined = joined_](int number) { joined->NoteLoss(number); };
  return ConnectRanks(std::move(links), options);
}

}  // namespace freshet
