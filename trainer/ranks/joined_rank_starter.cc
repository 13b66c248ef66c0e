#include "trainer/ranks/joined_rank_starter.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "base/log.h"
#include "base/str_cat.h"

namespace freshet {
namespace {

constexpr absl::Duration kFirstPatience = absl::Minutes(2);
constexpr absl::Duration kLaterPatience = absl::Seconds(10);

}  // namespace

std::string JoinedRankStarter::WaitsFor() const {
  return waits_ ? StrCat("ranks to join: ", joined_->Missing()) : "";
}

absl::StatusOr<std::unique_ptr<RankGroup>> JoinedRankStarter::Start(int ranks) {
  const absl::Duration patience = started_ ? kLaterPatience : kFirstPatience;
  started_ = true;
  if (joined_->Ready() < ranks - 1) {
    FRESHET_LOG(Info) << "event=ranks_awaited missing=" << LogQuoted(joined_->Missing())
                      << " patience=" << absl::FormatDuration(patience);
  }
  std::vector<RankLink> links;
  waits_ = true;
  std::vector<JoinedRanks::Rank> joined = joined_->Take(ranks - 1, patience);
  waits_ = false;
  for (JoinedRanks::Rank& rank : joined) {
    links.push_back({rank.number, std::move(rank.socket), std::make_unique<RankPeer>()});
  }
  if (links.empty()) {
    return StatusOf(absl::StatusCode::kUnavailable, "no rank has joined in ",
                    absl::FormatDuration(patience), "; missing: ", joined_->Missing());
  }
  return ConnectRanks(std::move(links), options_);
}

}  // namespace freshet
