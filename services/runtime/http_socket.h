#ifndef FRESHET_SERVICES_RUNTIME_HTTP_SOCKET_H_
#define FRESHET_SERVICES_RUNTIME_HTTP_SOCKET_H_

#include <boost/asio/buffer.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <cstddef>
#include <span>
#include <utility>

#include "services/runtime/http_tls.h"

namespace freshet::runtime {

// A connected socket that does not block, with TLS if it has a session. Confined to one thread.
class HttpSocket {
 public:
  using Error = boost::system::error_code;

  // `tls` is a session on `socket`; null: plaintext.
  HttpSocket(boost::asio::ip::tcp::socket socket, TlsSession tls)
      : socket_(std::move(socket)), tls_(std::move(tls)) {}

  boost::asio::ip::tcp::socket& tcp() { return socket_; }

  // Reads what there is; the buffer holds at least a TLS record (16 KiB). Errors: would_block; eof;
  // any other ends the connection.
  size_t Read(const boost::asio::mutable_buffer& buffer, Error& error);
  // Writes a beginning of the buffers, of which the first is not empty. After would_block the next
  // call begins with the same bytes.
  size_t Write(std::span<const boost::asio::const_buffer> buffers, Error& error);
  // Says that nothing more is sent.
  void EndWriting();

  // What to wait for after would_block, and before the next call.
  auto read_wait() const { return read_wait_; }
  auto write_wait() const { return write_wait_; }

 private:
  using Wait = boost::asio::ip::tcp::socket::wait_type;
  Error TlsError(int result, Wait& wait) const;

  boost::asio::ip::tcp::socket socket_;
  TlsSession tls_;  // destroyed first
  Wait read_wait_ = boost::asio::ip::tcp::socket::wait_read;
  Wait write_wait_ = boost::asio::ip::tcp::socket::wait_write;
};

}  // namespace freshet::runtime

#endif  // FRESHET_SERVICES_RUNTIME_HTTP_SOCKET_H_
