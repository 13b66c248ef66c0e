#ifndef FRESHET_ROLLOUT_ENVIRONMENT_GRPC_GRPC_ENVIRONMENT_CLIENT_H_
#define FRESHET_ROLLOUT_ENVIRONMENT_GRPC_GRPC_ENVIRONMENT_CLIENT_H_

#include <grpcpp/channel.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "rollout/environment/environment_client.h"

namespace freshet {

class EnvironmentStream;

struct GrpcEnvironmentClientOptions {
  absl::Duration step_timeout = absl::Seconds(5);   // per answer
  absl::Duration episode_timeout = absl::Hours(1);  // per episode
  // How long a worker that failed or was full is used only if there is no other.
  absl::Duration avoid_failed = absl::Seconds(5);
  absl::Duration avoid_full = absl::Milliseconds(200);
};

// Episodes on environment workers over gRPC, one stream each. A new episode goes to the worker with
// the fewest open episodes of this client, round-robin among equals, and stays there. Time-outs are
// detected by Poll. SetAddresses and open_episodes are thread-safe; the other methods are not.
class GrpcEnvironmentClient final : public EnvironmentClient {
 public:
  // Returns a channel to HOST:PORT. An error fails the episodes that would use it.
  using ChannelMaker =
      std::function<absl::StatusOr<std::shared_ptr<grpc::Channel>>(const std::string& address)>;

  // The clock must outlive the client.
  GrpcEnvironmentClient(ChannelMaker make_channel, const Clock& clock,
                        GrpcEnvironmentClientOptions options);
  // Cancels all episodes and waits until their streams have ended. Must not run on a gRPC thread.
  ~GrpcEnvironmentClient() override;

  // Sets the workers. Episodes on workers that are no longer listed continue.
  void SetAddresses(std::vector<std::string> addresses);
  int64_t open_episodes() const;

  void Reset(int64_t episode, const EpisodeStart& start) override;
  void Step(int64_t episode, std::string action) override;
  void Close(int64_t episode) override;
  std::vector<EpisodeEvent> Poll() override;
  void Await(absl::Duration timeout) override;

 private:
  struct Inbox;
  struct Worker;
  struct Open {
    std::shared_ptr<EnvironmentStream> stream;  // ends with the episode
    std::string address;
    bool waiting = false;  // for an answer
    absl::Time deadline;   // of that answer
  };

  void TakeAddresses();
  Worker* PickWorker();
  void Blame(const std::string& address, const absl::Status& status);
  void CheckDeadlines();
  void Expect(int64_t episode, Open& open);

  const ChannelMaker make_channel_;
  const Clock& clock_;
  const GrpcEnvironmentClientOptions options_;
  const std::shared_ptr<Inbox> inbox_;

  std::map<std::string, std::unique_ptr<Worker>> workers_;  // by address
  std::map<int64_t, Open> open_;
  std::multimap<absl::Time, int64_t> deadlines_;
  uint64_t picks_ = 0;

  mutable Mutex mu_;
  std::vector<std::string> new_addresses_ ABSL_GUARDED_BY(mu_);
  bool addresses_changed_ ABSL_GUARDED_BY(mu_) = false;
  int64_t num_open_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace freshet

#endif  // FRESHET_ROLLOUT_ENVIRONMENT_GRPC_GRPC_ENVIRONMENT_CLIENT_H_
