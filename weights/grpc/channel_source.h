#ifndef FRESHET_WEIGHTS_GRPC_CHANNEL_SOURCE_H_
#define FRESHET_WEIGHTS_GRPC_CHANNEL_SOURCE_H_

#include <grpcpp/channel.h>

#include <functional>
#include <memory>
#include <string>

namespace freshet {

// Returns a channel to HOST:PORT, or null if that is impossible. Called from several threads;
// channels to the same address may be shared. Either the source keeps its channels, or the process
// runs a callback-API server: gRPC 1.51 aborts if the last user of its callback threads is released
// on such a thread, which the end of a call would do.
using ChannelSource = std::function<std::shared_ptr<grpc::Channel>(const std::string& address)>;

}  // namespace freshet

#endif  // FRESHET_WEIGHTS_GRPC_CHANNEL_SOURCE_H_
