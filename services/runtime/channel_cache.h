#ifndef FRESHET_SERVICES_RUNTIME_CHANNEL_CACHE_H_
#define FRESHET_SERVICES_RUNTIME_CHANNEL_CACHE_H_

#include <grpcpp/channel.h>

#include <map>
#include <memory>
#include <string>
#include <utility>

#include "services/base/mutex.h"
#include "services/runtime/channel.h"

namespace freshet::runtime {

// Channels to the members of a cluster, one per address. Holds at most kMaxChannels: those that
// nobody else uses go first. Thread-safe.
class ChannelCache {
 public:
  static constexpr size_t kMaxChannels = 1024;

  explicit ChannelCache(ChannelOptions options) : options_(std::move(options)) {}
  // Errors as of MakeChannel; RESOURCE_EXHAUSTED when kMaxChannels are in use.
  absl::StatusOr<std::shared_ptr<grpc::Channel>> Get(const std::string& address)
      ABSL_LOCKS_EXCLUDED(mu_);

 private:
  const ChannelOptions options_;
  Mutex mu_;
  std::map<std::string, std::shared_ptr<grpc::Channel>> channels_ ABSL_GUARDED_BY(mu_);
};

}  // namespace freshet::runtime

#endif  // FRESHET_SERVICES_RUNTIME_CHANNEL_CACHE_H_
