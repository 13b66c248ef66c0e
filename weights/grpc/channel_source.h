#ifndef FRESHET_WEIGHTS_GRPC_CHANNEL_SOURCE_H_
#define FRESHET_WEIGHTS_GRPC_CHANNEL_SOURCE_H_

#include <grpcpp/channel.h>

#include <functional>
#include <memory>
#include <string>

namespace freshet {

// A channel to HOST:PORT, or null when there can be none. Called from several threads; channels to
// one address may be shared. The source keeps its channels, or the process has a server of the
// callback API: gRPC 1.51 aborts when the last user of its callback threads is dropped by one of
// them, as a call's end would do.
using ChannelSource = std::function<std::shared_ptr<grpc::Channel>(const std::string& address)>;

}  // namespace freshet

#endif  // FRESHET_WEIGHTS_GRPC_CHANNEL_SOURCE_H_
