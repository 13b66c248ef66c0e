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

// Ranks that are child processes of rank 0. They end with this process, and are killed when they
// hang.
class ChildRankStarter final : public RankStarter {
 public:
  // `argv`: the program of the other ranks and its arguments. Its standard input is the socket for
  // RunRank. `gpu_each`: rank N sees only GPU N of those that this process sees.
  ChildRankStarter(std::vector<std::string> argv, RankLinkOptions options, bool gpu_each = false)
      : argv_(std::move(argv)), options_(std::move(options)), gpu_each_(gpu_each) {}
  int Ready() const override { return std::numeric_limits<int>::max(); }
  // Groups are complete.
  bool HasOthers(const std::vector<trainer::v1::RankReport>& /*group*/) const override {
    return false;
  }
  absl::StatusOr<std::unique_ptr<RankGroup>> Start(int ranks) override;

 private:
  const std::vector<std::string> argv_;
  const RankLinkOptions options_;
  const bool gpu_each_;
};

// The value of CUDA_VISIBLE_DEVICES for a process that sees only GPU `number` of those that a
// process with `visible` sees; null: it is not set.
std::string OnlyGpu(const char* visible, int number);

}  // namespace freshet

#endif  // FRESHET_TRAINER_RANKS_CHILD_RANKS_H_
