#include "services/runtime/channel_cache.h"

#include "services/base/status_macros.h"
#include "services/base/str_cat.h"

namespace freshet::runtime {

absl::StatusOr<std::shared_ptr<grpc::Channel>> ChannelCache::Get(const std::string& address) {
  MutexLock lock(mu_);
  const auto found = channels_.find(address);
  if (found != channels_.end()) return found->second;
  if (channels_.size() >= kMaxChannels) {
    std::erase_if(channels_, [](const auto& entry) { return entry.second.use_count() == 1; });
  }
  if (channels_.size() >= kMaxChannels) {
    return ResourceExhausted("channels to ", kMaxChannels, " addresses are in use");
  }
  FRESHET_ASSIGN_OR_RETURN(std::shared_ptr<grpc::Channel> channel, MakeChannel(address, options_));
  channels_[address] = channel;
  return channel;
}

}  // namespace freshet::runtime
