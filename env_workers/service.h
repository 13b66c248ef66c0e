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
  int64_t max_episodes = 1024;  // running at the same time
  // Streams that may wait for a slot, oldest first. More are refused with RESOURCE_EXHAUSTED, and
  // so is one that has waited for `max_wait`, which should be shorter than the clients' reply
  // timeout.
  int64_t max_waiting = 1024;
  absl::Duration max_wait = absl::Seconds(2);
  // A stream whose client is silent for this long ends with DEADLINE_EXCEEDED. A policy generates a
  // turn between two steps, so do not make it too short.
  absl::Duration idle_timeout = absl::Minutes(5);
};

// Serves the environments of a registry, one episode per stream. Environments do not block
// (environment.h), so they run on gRPC's threads. Thread-safe.
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

  // Streams with a slot, at most max_episodes, and streams that wait for one.
  int64_t open_episodes() const ABSL_LOCKS_EXCLUDED(mu_);
  int64_t waiting_episodes() const ABSL_LOCKS_EXCLUDED(mu_);
  // From now on new and waiting episodes are refused with UNAVAILABLE; running ones continue.
  void StopAdmitting() ABSL_LOCKS_EXCLUDED(mu_);
  // Waits until no stream is open or until `deadline` (real time). Returns whether none is open.
  bool AwaitNoEpisodes(absl::Time deadline);
  // Ends streams that were idle or waited for too long. Called every second by its own thread.
  void EndIdle() ABSL_LOCKS_EXCLUDED(mu_);

 private:
  class Stream;

  enum class Place { kNone, kWaiting, kRunning };
  struct Entry {
    std::shared_ptr<Stream> stream;
    Place place = Place::kNone;
    absl::Time since;  // arrival time
  };

  // Called by streams. Returns whether the stream has a slot or waits for one.
  absl::StatusOr<Place> Admit(Stream* stream) ABSL_LOCKS_EXCLUDED(mu_);
  absl::Status CheckAdmitting() const ABSL_LOCKS_EXCLUDED(mu_);
  absl::Status Full() const;
  void Leave(Stream* stream) ABSL_LOCKS_EXCLUDED(mu_);
  // Removes and returns the streams that have waited since before `before`.
  std::vector<std::shared_ptr<Stream>> TakeWaiting(absl::Time before)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void UpdateOpenMetric() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Run(std::stop_token stop);

  const EnvironmentRegistry& environments_;
  const Clock& clock_;
  EnvMetrics* const metrics_;
  const EnvServiceOptions options_;

  mutable Mutex mu_;
  CondVar changed_;
  bool admitting_ ABSL_GUARDED_BY(mu_) = true;
  std::map<Stream*, Entry> streams_ ABSL_GUARDED_BY(mu_);
  std::deque<Stream*> waiting_ ABSL_GUARDED_BY(mu_);  // oldest first
  int64_t running_ ABSL_GUARDED_BY(mu_) = 0;
  std::jthread idle_thread_;
};

}  // namespace freshet

#endif  // FRESHET_ENV_WORKERS_SERVICE_H_
