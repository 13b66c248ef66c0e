#ifndef FRESHET_TRAINER_RANKS_GRPC_SOCKET_BYTES_H_
#define FRESHET_TRAINER_RANKS_GRPC_SOCKET_BYTES_H_

#include <sys/socket.h>

#include <cerrno>
#include <cstddef>
#include <string>
#include <string_view>

namespace freshet {

// Reads between 1 and `most` bytes of a blocking socket. False: it is closed.
inline bool ReadSome(int fd, size_t most, std::string& bytes) {
  bytes.resize(most);
  ssize_t got = 0;
  do {
    got = ::recv(fd, bytes.data(), most, 0);
  } while (got < 0 && errno == EINTR);
  bytes.resize(got > 0 ? static_cast<size_t>(got) : 0);
  return got > 0;
}

// Blocks until a blocking socket has taken the bytes. False: it is closed.
inline bool SendAll(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) return false;
    bytes.remove_prefix(static_cast<size_t>(sent));
  }
  return true;
}

}  // namespace freshet

#endif  // FRESHET_TRAINER_RANKS_GRPC_SOCKET_BYTES_H_
