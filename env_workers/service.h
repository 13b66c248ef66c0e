#ifndef FRESHET_ENV_WORKERS_SERVICE_H_
#define FRESHET_ENV_WORKERS_SERVICE_H_

#include <cstdint>
#include <memory>
#include <set>
#include <stop_token>
#include <thread>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "env_workers/env_metrics.h"
#include "env_workers/environment.h"
#include "freshet/env/v1/env_service.grpc.pb.h"
#include "services/base/clock.h"
#include "services/base/mutex.h"

namespace freshet {

struct EnvServiceOptions {
  int64_t max_episodes = 1024;  // streams open at the same time
  // A stream whose client says nothing for so long is ended with DEADLINE_EXCEEDED. Between two
  // steps a policy generates a turn: not to be taken too short.
  absl::Duration idle_timeout = absl::Minutes(5);
};

// Serves the environments of a registry, one episode per stream. Environments are pure computation
// (environment.h), so they run in gRPC's own threads. Thread-safe.
class EnvService final : public env::v1::EnvService::CallbackService {
 public:
  // All must outlive the service; `metrics` may be null.
  EnvService(const EnvironmentRegistry& environments, const Clock& clock, EnvMetrics* metrics,
             EnvServiceOptions options);
  ~EnvService() override;

  grpc::ServerBidiReactor<env::v1::EpisodeRequest, env::v1::EpisodeReply>* Episode(
      grpc::CallbackServerContext* context) override;
  grpc::ServerUnaryReactor* ListEnvironments(grpc::CallbackServerContext* context,
                                             const env::v1::ListEnvironmentsRequest* request,
                                             env::v1::ListEnvironmentsReply* reply) override;

  int64_t open_episodes() const;
  // From now on new episodes are refused with UNAVAILABLE; running ones go on.
  void StopAdmitting();
  // Waits until no stream is open, or until `deadline` (real time); whether none is.
  bool AwaitNoEpisodes(absl::Time deadline);
  // Ends streams that have been idle for too long; called every second by a thread of its own.
  void EndIdle();

 private:
  class Stream;

  // Called by streams.
  absl::Status Admit(Stream* stream);
  absl::Status CheckAdmitting() const;
  void Leave(Stream* stream);
  void Run(std::stop_token stop);

  const EnvironmentRegistry& environments_;
  const Clock& clock_;
  EnvMetrics* const metrics_;
  const EnvServiceOptions options_;

  mutable Mutex mu_;
  CondVar changed_;
  bool admitting_ ABSL_GUARDED_BY(mu_) = true;
  std::set<std::shared_ptr<Stream>> streams_ ABSL_GUARDED_BY(mu_);
  std::jthread idle_thread_;
};

}  // namespace freshet

#endif  // FRESHET_ENV_WORKERS_SERVICE_H_
