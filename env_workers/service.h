#ifndef FRESHET_ENV_WORKERS_SERVICE_H_
#define FRESHET_ENV_WORKERS_SERVICE_H_

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <stop_token>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "env_workers/env_metrics.h"
#include "env_workers/environment.h"
#include "freshet/env/v1/env_service.grpc.pb.h"

namespace freshet {

struct EnvServiceOptions {
  int64_t max_episodes = 1024;  // that run at the same time
  // Streams that may wait for a place, oldest first; more are refused with RESOURCE_EXHAUSTED, and
  // so is one that has waited for `max_wait`. To be shorter than what clients wait for an answer.
  int64_t max_waiting = 1024;
  absl::Duration max_wait = absl::Seconds(2);
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

  // Streams that have a place, never more than max_episodes; and those that wait for one.
  int64_t open_episodes() const ABSL_LOCKS_EXCLUDED(mu_);
  int64_t waiting_episodes() const ABSL_LOCKS_EXCLUDED(mu_);
  // From now on new episodes, and those that wait, are refused with UNAVAILABLE; running ones go
  // on.
  void StopAdmitting() ABSL_LOCKS_EXCLUDED(mu_);
  // Waits until no stream is open, or until `deadline` (real time); whether none is.
  bool AwaitNoEpisodes(absl::Time deadline);
  // Ends streams that have been idle, or have waited, for too long; called every second by a
  // thread of its own.
  void EndIdle() ABSL_LOCKS_EXCLUDED(mu_);

 private:
  class Stream;

  enum class Place { kNone, kWaiting, kRunning };
  struct Guest {
    std::shared_ptr<Stream> stream;
    Place place = Place::kNone;
    absl::Time since;  // when it came
  };

  // Called by streams. Whether the stream has a place now, or waits for one.
  absl::StatusOr<Place> Admit(Stream* stream) ABSL_LOCKS_EXCLUDED(mu_);
  absl::Status CheckAdmitting() const ABSL_LOCKS_EXCLUDED(mu_);
  absl::Status Full() const;
  void Leave(Stream* stream) ABSL_LOCKS_EXCLUDED(mu_);
  // The streams that have waited since before `before` wait no more.
  std::vector<std::shared_ptr<Stream>> TakeWaiting(absl::Time before)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void ShowOpen() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Run(std::stop_token stop);

  const EnvironmentRegistry& environments_;
  const Clock& clock_;
  EnvMetrics* const metrics_;
  const EnvServiceOptions options_;

  mutable Mutex mu_;
  CondVar changed_;
  bool admitting_ ABSL_GUARDED_BY(mu_) = true;
  std::map<Stream*, Guest> guests_ ABSL_GUARDED_BY(mu_);
  std::deque<Stream*> waiting_ ABSL_GUARDED_BY(mu_);  // oldest first
  int64_t running_ ABSL_GUARDED_BY(mu_) = 0;
  std::jthread idle_thread_;
};

}  // namespace freshet

#endif  // FRESHET_ENV_WORKERS_SERVICE_H_
