#ifndef FRESHET_TRAINER_RANKS_CHILD_RANKS_H_
#define FRESHET_TRAINER_RANKS_CHILD_RANKS_H_

#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "trainer/ranks/rank_links.h"

namespace freshet {

// Ranks that are child processes of rank 0, connected over Gloo on the loopback interface. They end
// with this process, and are killed when they hang.
class ChildRankStarter final : public RankStarter {
 public:
  // `argv`: the program of the other ranks and its arguments. Its standard input is the socket for
  // RunRank.
  ChildRankStarter(std::vector<std::string> argv, RankLinkOptions options)
      : argv_(std::move(argv)), options_(std::move(options)) {}
  int Ready() const override { return std::numeric_limits<int>::max(); }
  // Groups are complete.
  bool HasOthers(const std::vector<trainer::v1::RankReport>& /*group*/) const override {
    return false;
  }
  absl::StatusOr<std::unique_ptr<RankGroup>> Start(int ranks) override;

 private:
  const std::vector<std::string> argv_;
  const RankLinkOptions options_;
};

}  // namespace freshet

#endif  // FRESHET_TRAINER_RANKS_CHILD_RANKS_H_
