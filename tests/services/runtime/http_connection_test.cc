#include "services/runtime/http_connection.h"

#include <boost/asio/buffer.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/read_until.hpp>
#include <boost/asio/write.hpp>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/services/runtime/http_requests.h"

namespace freshet::runtime {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

TEST(HttpConnection, SendsAContinueForWhichThereIsNoRoomBeforeTheAnswer) {
  asio::io_context io;
  tcp::acceptor acceptor(io, tcp::endpoint(asio::ip::address_v4::loopback(), 0));
  tcp::socket client(io, tcp::v4());
  client.set_option(tcp::socket::receive_buffer_size(4096));
  client.connect(acceptor.local_endpoint());
  tcp::socket accepted = acceptor.accept();
  accepted.set_option(tcp::socket::send_buffer_size(4096));
  accepted.non_blocking(true);
  // Before the buffers are filled, because its packet would acknowledge bytes and so make room.
  const std::string head = "POST / HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n";
  asio::write(client, asio::buffer(head));
  size_t filled = 0;
  for (const size_t size : {1024, 1}) {  // to the last byte
    const std::string filler(size, 'x');
    error_code full;
    while (!full) filled += accepted.write_some(asio::buffer(filler), full);
  }

  bool parsed = false;
  HttpLimits limits = ApiLimits();
  limits.check_head = [&parsed](const HttpRequest&) -> std::optional<HttpResponse> {
    parsed = true;
    return std::nullopt;
  };
  HttpContext context{.handler =
                          [](const HttpRequest& request, const std::shared_ptr<HttpReply>& reply) {
                            reply->Send({.body = request.body + "!"});
                          },
                      .limits = limits,
                      .thread = std::make_shared<HttpThread>([&io](HttpThread::Function function) {
                        asio::post(io, std::move(function));
                      })};
  std::make_shared<HttpConnection>(std::move(accepted), nullptr, context)->Start();
  while (!parsed && io.run_one_for(std::chrono::seconds(10)) > 0) {
  }
  ASSERT_TRUE(parsed);
  const std::string body = "hi";
  asio::write(client, asio::buffer(body));
  std::string received;
  asio::async_read_until(client, asio::dynamic_buffer(received), "hi!",
                         [&io](error_code, size_t) { io.stop(); });
  io.run_for(std::chrono::seconds(10));
  ASSERT_THAT(received, testing::EndsWith("hi!"));
  ASSERT_GT(received.size(), filled);
  EXPECT_THAT(received.substr(filled),
              testing::StartsWith("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n"));
}

}  // namespace
}  // namespace freshet::runtime
