#ifndef FRESHET_SERVICES_RUNTIME_HTTP_CONNECTION_H_
#define FRESHET_SERVICES_RUNTIME_HTTP_CONNECTION_H_

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <cstddef>
#include <deque>
#include <memory>
#include <optional>
#include <string>

#include "absl/time/time.h"
#include "services/runtime/http_connections.h"
#include "services/runtime/http_exchange.h"
#include "services/runtime/http_message.h"
#include "services/runtime/http_server.h"
#include "services/runtime/http_socket.h"

namespace freshet::runtime {

// What the connections of a server share. Confined to the server's thread, which it must outlive.
struct HttpContext {
  const HttpAsyncHandler handler;
  const HttpLimits limits;
  const std::shared_ptr<HttpThread> thread;
  HttpConnections connections{};
  size_t body_bytes = 0;                         // of the requests being received
  std::string input = std::string(64 << 10, 0);  // receives what is read
};

// One connection of a server: reads a request, has it answered, sends the answer, and starts again.
// Confined to the server's thread. `context` lists it while it is open, and the operations that it
// waits for own it.
class HttpConnection : public std::enable_shared_from_this<HttpConnection> {
 public:
  // `tls` is a session on `socket`; null: plaintext.
  HttpConnection(boost::asio::ip::tcp::socket socket, TlsSession tls, HttpContext& context);

  // Lists it in `context`, and answers a request that has already arrived. Call once.
  void Start();
  void Close();

 private:
  using TimePoint = std::chrono::steady_clock::time_point;

  void SetState(HttpState state);
  void SetDeadline(TimePoint deadline);
  void OnDeadline();

  void ExpectRequest(HttpState state);
  // Waits for input.
  void Read();
  void Receive();
  void Parse();
  // The answer to a request whose body need not be received.
  std::optional<HttpResponse> AnswerToHead() const;
  void SendContinue();
  // Returns whether the bodies in memory are within their limit.
  bool CountBody(size_t bytes);

  void Handle();
  void Refuse(const HttpRefusal& refusal);
  void AnswerAndClose(HttpResponse answer);
  void StartAnswer();
  // Takes over what has been given of the answer.
  void Advance();
  void Write();
  void FinishAnswer();

  HttpContext& context_;
  HttpSocket socket_;
  boost::asio::steady_timer deadline_;
  HttpState state_ = HttpState::kReading;
  HttpConnections::Place place_;
  bool open_ = true;
  bool waits_to_read_ = false;
  bool waits_to_write_ = false;

  std::string input_;                        // not parsed yet
  std::optional<HttpRequestParser> parser_;  // while it is kIdle or kReading
  size_t head_bytes_ = 0;
  size_t body_bytes_ = 0;  // included in context_.body_bytes

  HttpExchange::Options options_;
  std::shared_ptr<HttpExchange> exchange_;  // while it is kAnswering or kWriting
  TimePoint answer_by_;
  bool streamed_ = false;
  std::deque<std::string> output_;
  size_t sent_ = 0;             // of output_.front()
  size_t continue_unsent_ = 0;  // of "100 Continue", which goes before the answer
};

}  // namespace freshet::runtime

#endif  // FRESHET_SERVICES_RUNTIME_HTTP_CONNECTION_H_
