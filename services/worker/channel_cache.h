#ifndef FRESHET_SERVICES_WORKER_CHANNEL_CACHE_H_
#define FRESHET_SERVICES_WORKER_CHANNEL_CACHE_H_

#include <grpcpp/channel.h>

#include <map>
#include <memory>
#include <string>
#include <utility>

#include "base/mutex.h"
#include "freshet/cluster/v1/worker_service.pb.h"
#include "services/runtime/channel.h"

namespace freshet::runtime {

// Channels to cluster members and to addresses that jobs name, one per address and expected name.
// Holds at most kMaxChannels; unused ones are evicted first. Thread-safe.
class ChannelCache {
 public:
  static constexpr size_t kMaxChannels = 1024;

  explicit ChannelCache(ChannelOptions options) : options_(std::move(options)) {}

  // Channel to an address that a job names, and to all servers behind its name; their certificates
  // must match its host. Errors as for MakeChannel; RESOURCE_EXHAUSTED if kMaxChannels are in use.
  absl::StatusOr<std::shared_ptr<grpc::Channel>> Get(const std::string& address)
      ABSL_LOCKS_EXCLUDED(mu_);
  // Channel to a member with `role`, whose certificate is checked as in ForMember. Same errors.
  absl::StatusOr<std::shared_ptr<grpc::Channel>> Get(const std::string& address,
                                                     cluster::v1::Role role)
      ABSL_LOCKS_EXCLUDED(mu_);

 private:
  absl::StatusOr<std::shared_ptr<grpc::Channel>> Open(const std::string& address,
                                                      const ChannelOptions& options)
      ABSL_LOCKS_EXCLUDED(mu_);

  const ChannelOptions options_;
  Mutex mu_;
  // By address, and server_name or cluster_token_file.
  std::map<std::pair<std::string, std::string>, std::shared_ptr<grpc::Channel>> channels_
      ABSL_GUARDED_BY(mu_);
};

}  // namespace freshet::runtime

#endif  // FRESHET_SERVICES_WORKER_CHANNEL_CACHE_H_
