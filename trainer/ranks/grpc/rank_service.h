#ifndef FRESHET_TRAINER_RANKS_GRPC_RANK_SERVICE_H_
#define FRESHET_TRAINER_RANKS_GRPC_RANK_SERVICE_H_

#include <memory>
#include <utility>

#include "freshet/trainer/v1/rank_service.grpc.pb.h"
#include "trainer/ranks/joined_ranks.h"

namespace freshet {

inline constexpr size_t kRankBytes = size_t{1} << 20;  // most in a message of Join

// RankService: passes the bytes between a rank's stream and its socket in `joined`. Thread-safe.
class GrpcRankService final : public trainer::v1::RankService::CallbackService {
 public:
  explicit GrpcRankService(std::shared_ptr<JoinedRanks> joined) : joined_(std::move(joined)) {}

  grpc::ServerBidiReactor<trainer::v1::RankBytes, trainer::v1::RankBytes>* Join(
      grpc::CallbackServerContext* context) override;

 private:
  const std::shared_ptr<JoinedRanks> joined_;
};

}  // namespace freshet

#endif  // FRESHET_TRAINER_RANKS_GRPC_RANK_SERVICE_H_
