#include "services/worker/channel_cache.h"

#include "base/status_macros.h"
#include "base/str_cat.h"
#include "services/worker/role_name.h"

namespace freshet::runtime {

absl::StatusOr<std::shared_ptr<grpc::Channel>> ChannelCache::Get(const std::string& address) {
  ChannelOptions options = options_;
  options.all_addresses = true;
  return Open(address, options);
}

absl::StatusOr<std::shared_ptr<grpc::Channel>> ChannelCache::Get(const std::string& address,
                                                                 cluster::v1::Role role) {
  return Open(address, ForMember(options_, RoleName(role)));
}

absl::StatusOr<std::shared_ptr<grpc::Channel>> ChannelCache::Open(const std::string& address,
                                                                  const ChannelOptions& options) {
  const std::pair<std::string, std::string> key(
      address, options.tls.files.enabled() ? options.tls.server_name : options.cluster_token_file);
  MutexLock lock(mu_);
  const auto found = channels_.find(key);
  if (found != channels_.end()) return found->second;
  if (channels_.size() >= kMaxChannels) {
    std::erase_if(channels_, [](const auto& entry) { return entry.second.use_count() == 1; });
  }
  if (channels_.size() >= kMaxChannels) {
    return ResourceExhausted("channels to ", kMaxChannels, " addresses are in use");
  }
  FRESHET_ASSIGN_OR_RETURN(std::shared_ptr<grpc::Channel> channel, MakeChannel(address, options));
  channels_[key] = channel;
  return channel;
}

}  // namespace freshet::runtime
