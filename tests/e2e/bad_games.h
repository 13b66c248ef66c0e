#ifndef FRESHET_TESTS_E2E_BAD_GAMES_H_
#define FRESHET_TESTS_E2E_BAD_GAMES_H_

#include <grpcpp/grpcpp.h>

#include <cstdint>
#include <map>
#include <string>

#include "base/mutex.h"
#include "freshet/env/v1/env_service.grpc.pb.h"
#include "tests/testing/loopback_server.h"

namespace freshet {

// An environment whose episodes end after the first step, except for bad games: one in `one_in`.
// The samples of a prompt play the same game, identified by its seed.
class BadGames final : public env::v1::EnvService::Service {
 public:
  enum class Kind {
    kStepRaises,          // returns INTERNAL
    kStepHangs,           // hangs until the caller cancels
    kResetHangs,          // hangs until the caller cancels
    kForeignObservation,  // steps return kForeign; in every other bad game resets do, too
  };
  // Not in the alphabet of QuickJob (cluster_job.h).
  static constexpr char kForeign[] = "\xC3\xA9";

  BadGames(Kind kind, int64_t one_in) : kind_(kind), one_in_(one_in) {}
  std::string address() const { return server_.address(); }
  // Calls that are currently hanging.
  int hanging() const ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(mu_);
    return hanging_;
  }
  // Number of bad games started.
  int64_t bad() const ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(mu_);
    // Game numbers 0, one_in, 2 * one_in, ... are bad.
    return games_.empty() ? 0 : (static_cast<int64_t>(games_.size()) - 1) / one_in_ + 1;
  }

  grpc::Status Episode(
      grpc::ServerContext* context,
      grpc::ServerReaderWriter<env::v1::EpisodeReply, env::v1::EpisodeRequest>* stream) override {
    env::v1::EpisodeRequest request;
    int64_t number = 0;
    while (stream->Read(&request) && !request.has_close()) {
      if (request.has_reset()) number = NumberOf(request.reset().seed());
      const bool bad = number % one_in_ == 0;
      if (bad && kind_ == Kind::kStepRaises && request.has_step()) {
        return {grpc::StatusCode::INTERNAL, "KeyError: 'answer'"};
      }
      if (bad && kind_ == Kind::kStepHangs && request.has_step()) Hang(*context);
      if (bad && kind_ == Kind::kResetHangs && request.has_reset()) Hang(*context);
      const bool foreign = bad && kind_ == Kind::kForeignObservation &&
                           (request.has_step() || number / one_in_ % 2 == 1);
      env::v1::EpisodeReply reply;
      reply.set_observation(foreign ? kForeign : "?");
      reply.set_reward(request.step().action().size() % 2 == 0 ? 1 : 0);
      reply.set_terminated(request.has_step() && !foreign);
      stream->Write(reply);
    }
    return grpc::Status::OK;
  }

 private:
  // Numbers games from 0 in order of their first call.
  int64_t NumberOf(uint64_t seed) ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(mu_);
    return games_.emplace(seed, static_cast<int64_t>(games_.size())).first->second;
  }
  void Hang(const grpc::ServerContext& context) ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(mu_);
    ++hanging_;
    while (!context.IsCancelled()) never_.WaitFor(mu_, absl::Milliseconds(20));
    --hanging_;
  }

  const Kind kind_;
  const int64_t one_in_;
  mutable Mutex mu_;
  CondVar never_;
  int hanging_ ABSL_GUARDED_BY(mu_) = 0;
  std::map<uint64_t, int64_t> games_ ABSL_GUARDED_BY(mu_);  // seed -> number
  const LoopbackServer server_{this};
};

}  // namespace freshet

#endif  // FRESHET_TESTS_E2E_BAD_GAMES_H_
