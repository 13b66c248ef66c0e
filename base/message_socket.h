#ifndef FRESHET_BASE_MESSAGE_SOCKET_H_
#define FRESHET_BASE_MESSAGE_SOCKET_H_

#include <cstddef>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/unique_fd.h"
#include "google/protobuf/message_lite.h"

namespace freshet {

// Two connected, blocking stream sockets. UNAVAILABLE: there are no descriptors left.
absl::StatusOr<std::pair<UniqueFd, UniqueFd>> SocketPair();

// Protobuf messages over a connected stream socket, each after its length in 4 bytes (little
// endian). One thread may send while another one receives.
class MessageSocket {
 public:
  static constexpr size_t kMaxBytes = size_t{1} << 30;  // of a message

  explicit MessageSocket(UniqueFd fd) : fd_(std::move(fd)) {}

  // UNAVAILABLE: the other side has closed; DEADLINE_EXCEEDED: it did not take the message in time;
  // INVALID_ARGUMENT: the message is too large. The socket is of no use afterwards.
  absl::Status Send(const google::protobuf::MessageLite& message, absl::Duration timeout);

  // Ends both directions, and calls in progress, on both sides. Thread-safe.
  void Shutdown();

  // Waits for a message. UNAVAILABLE: the other side has closed; DEADLINE_EXCEEDED: there was none
  // in time; DATA_LOSS: too large or not of this type. The socket is of no use afterwards.
  absl::Status Receive(google::protobuf::MessageLite& message, absl::Duration timeout,
                       size_t max_bytes = kMaxBytes);

 private:
  absl::Status Await(short events, absl::Time deadline) const;
  absl::Status Read(char* data, size_t size, absl::Time deadline) const;

  UniqueFd fd_;
};

}  // namespace freshet

#endif  // FRESHET_BASE_MESSAGE_SOCKET_H_
