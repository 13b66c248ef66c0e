#include "services/runtime/http_socket.h"

#include <openssl/err.h>

#include <boost/asio/error.hpp>

namespace freshet::runtime {

namespace asio = boost::asio;

HttpSocket::Error HttpSocket::TlsError(int result, Wait& wait) const {
  switch (SSL_get_error(tls_.get(), result)) {
    case SSL_ERROR_NONE:
      return {};
    case SSL_ERROR_WANT_READ:
      wait = asio::ip::tcp::socket::wait_read;
      return asio::error::would_block;
    case SSL_ERROR_WANT_WRITE:
      wait = asio::ip::tcp::socket::wait_write;
      return asio::error::would_block;
    case SSL_ERROR_ZERO_RETURN:
      return asio::error::eof;
    default:
      return asio::error::connection_aborted;
  }
}

size_t HttpSocket::Read(const asio::mutable_buffer& buffer, Error& error) {
  if (tls_ == nullptr) return socket_.read_some(buffer, error);
  ERR_clear_error();
  read_wait_ = asio::ip::tcp::socket::wait_read;
  size_t size = 0;
  const int result = SSL_read_ex(tls_.get(), buffer.data(), buffer.size(), &size);
  error = TlsError(result, read_wait_);
  return size;
}

size_t HttpSocket::Write(std::span<const asio::const_buffer> buffers, Error& error) {
  if (tls_ == nullptr) return socket_.write_some(buffers, error);
  ERR_clear_error();
  write_wait_ = asio::ip::tcp::socket::wait_write;
  size_t size = 0;
  const int result =
      SSL_write_ex(tls_.get(), buffers.front().data(), buffers.front().size(), &size);
  error = TlsError(result, write_wait_);
  return size;
}

void HttpSocket::EndWriting() {
  // What it sends is dropped if the socket is full; the client then sees the end of the stream.
  if (tls_ != nullptr) SSL_shutdown(tls_.get());
  Error ignored;
  socket_.shutdown(asio::ip::tcp::socket::shutdown_send, ignored);
}

}  // namespace freshet::runtime
