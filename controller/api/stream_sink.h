#ifndef FRESHET_CONTROLLER_API_STREAM_SINK_H_
#define FRESHET_CONTROLLER_API_STREAM_SINK_H_

#include "absl/status/status.h"

namespace freshet {

// The sending side of a server-streaming call, for producers that may block. Thread-safe.
template <typename Response>
class StreamSink {
 public:
  virtual ~StreamSink() = default;
  // Blocks until the transport has taken the message. Returns false if the call has ended.
  virtual bool Write(const Response& message) = 0;
  // True if the client is gone, the deadline has passed or the server is shutting down.
  virtual bool ended() const = 0;
};

// Status of a stream whose call has ended.
inline absl::Status ClientIsGone() { return absl::CancelledError("the client is gone"); }

}  // namespace freshet

#endif  // FRESHET_CONTROLLER_API_STREAM_SINK_H_
