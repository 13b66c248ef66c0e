#include "services/runtime/http_client.h"

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/string_body.hpp>
#include <utility>

#include "base/str_cat.h"
#include "services/runtime/endpoint_options.h"

namespace freshet::runtime {

HttpResponse HttpGet(const std::string& address, const std::string& path, absl::Duration timeout) {
  namespace asio = boost::asio;
  namespace http = boost::beast::http;
  using boost::beast::error_code;
  HttpResponse answer{.status = 0};
  const auto where = ParseHostPort(address);
  if (!where.has_value()) return answer;
  error_code error;
  const auto ip =
      asio::ip::make_address(where->host == "localhost" ? "127.0.0.1" : where->host, error);
  if (error) return answer;

  const std::string request =
      StrCat("GET ", path, " HTTP/1.1\r\nHost: ", address, "\r\nConnection: close\r\n\r\n");
  boost::beast::flat_buffer buffer;
  http::response<http::string_body> response;
  asio::io_context io(1);
  asio::ip::tcp::socket socket(io);
  auto received = [&](error_code failed, size_t) {
    if (failed) return;
    answer.status = static_cast<int>(response.result_int());
    answer.content_type = std::string(response[http::field::content_type]);
    answer.body = std::move(response.body());
  };
  auto sent = [&](error_code failed, size_t) {
    if (!failed) http::async_read(socket, buffer, response, received);
  };
  socket.async_connect({ip, static_cast<uint16_t>(where->port)}, [&](error_code failed) {
    if (!failed) asio::async_write(socket, asio::buffer(request), sent);
  });
  io.run_for(absl::ToChronoMilliseconds(timeout));
  return answer;
}

}  // namespace freshet::runtime
