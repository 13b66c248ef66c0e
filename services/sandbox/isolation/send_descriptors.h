#ifndef FRESHET_SERVICES_SANDBOX_ISOLATION_SEND_DESCRIPTORS_H_
#define FRESHET_SERVICES_SANDBOX_ISOLATION_SEND_DESCRIPTORS_H_

#include <string.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/uio.h>

#include <cstddef>

namespace freshet {

// Sends one message over a Unix socket, with copies of `fds`. Returns as sendmsg does. Needs
// nothing but the C library and does not allocate, so it may run in a forked child.
template <size_t kParts, size_t kFds>
ssize_t SendDescriptors(int socket, iovec (&parts)[kParts], const int (&fds)[kFds]) {
  alignas(cmsghdr) char space[CMSG_SPACE(sizeof(fds))] = {};
  msghdr message{};
  message.msg_iov = parts;
  message.msg_iovlen = kParts;
  message.msg_control = space;
  message.msg_controllen = sizeof(space);
  cmsghdr* carried = CMSG_FIRSTHDR(&message);
  carried->cmsg_level = SOL_SOCKET;
  carried->cmsg_type = SCM_RIGHTS;
  carried->cmsg_len = CMSG_LEN(sizeof(fds));
  memcpy(CMSG_DATA(carried), fds, sizeof(fds));
  return sendmsg(socket, &message, MSG_NOSIGNAL);
}

}  // namespace freshet

#endif  // FRESHET_SERVICES_SANDBOX_ISOLATION_SEND_DESCRIPTORS_H_
