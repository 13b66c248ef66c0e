#ifndef FRESHET_TRAINER_RANKS_GRPC_RANK_ROLE_H_
#define FRESHET_TRAINER_RANKS_GRPC_RANK_ROLE_H_

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "base/mutex.h"
#include "base/unique_fd.h"
#include "freshet/trainer/v1/rank_service.grpc.pb.h"
#include "grpcpp/channel.h"
#include "services/runtime/serve.h"

namespace freshet {

struct RankRoleOptions {
  int rank = 1;  // 1 .. ranks - 1
  int ranks = 2;
  std::string rank_zero;  // its address, for messages
  std::function<absl::StatusOr<std::shared_ptr<grpc::Channel>>()> connect;
  // Takes part in one group of ranks, until the socket is closed.
  std::function<absl::Status(UniqueFd socket)> run;
};

// The work of a trainer's further rank: joins rank 0, takes part in its groups, and joins again
// when a group or the connection has ended. Ready at once, because a set of pods is updated from
// the last one on, and rank 0 is the first. A drain ends the group.
class RankRole final : public runtime::Role {
 public:
  explicit RankRole(RankRoleOptions options) : options_(std::move(options)) {}
  ~RankRole() override { Stop(); }

  // A server needs one; it answers UNIMPLEMENTED.
  std::vector<grpc::Service*> Services() override { return {&no_calls_}; }
  absl::Status Start(const runtime::RoleContext& context) override;
  absl::Status Drain(absl::Time deadline) override;
  void Stop() override;

 private:
  void Join(std::stop_token stop);
  // Returns why the rank could not take part in a group, or failed in it.
  absl::Status JoinOnce(std::stop_token stop);

  const RankRoleOptions options_;
  trainer::v1::RankService::CallbackService no_calls_;
  Notification ended_;
  std::jthread thread_;
};

}  // namespace freshet

#endif  // FRESHET_TRAINER_RANKS_GRPC_RANK_ROLE_H_
