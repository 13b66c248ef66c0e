#ifndef FRESHET_TRAINER_RANKS_CHILD_RANKS_H_
#define FRESHET_TRAINER_RANKS_CHILD_RANKS_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "trainer/ranks/rank_group.h"

namespace freshet {

struct ChildRankOptions {
  // The program of the other ranks and its arguments. Its standard input is the socket for RunRank.
  std::vector<std::string> argv;
  trainer::v1::RankStart start;  // what all of them get
  absl::Duration start_timeout = absl::Seconds(60);
  // A rank that sends no report for so long counts as hung and is killed.
  absl::Duration silence = absl::Seconds(5);
};

// Ranks that are child processes of rank 0, connected over Gloo on the loopback interface. They end
// with this process, and are killed when they hang.
class ChildRankStarter final : public RankStarter {
 public:
  explicit ChildRankStarter(ChildRankOptions options) : options_(std::move(options)) {}
  absl::StatusOr<std::unique_ptr<RankGroup>> Start(int ranks) override;

 private:
  const ChildRankOptions options_;
};

}  // namespace freshet

#endif  // FRESHET_TRAINER_RANKS_CHILD_RANKS_H_
