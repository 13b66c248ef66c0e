#include "services/runtime/http_connection.h"

#include <algorithm>
#include <array>
#include <boost/asio/buffer.hpp>
#include <boost/asio/post.hpp>
#include <exception>
#include <utility>
#include <vector>

#include "base/log.h"
#include "base/str_cat.h"

namespace freshet::runtime {
namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;
using asio::ip::tcp;
using boost::system::error_code;

constexpr size_t kBodiesAtOnce = 64;  // full ones that may be in memory while they are received
constexpr size_t kBuffersAtOnce = 16;

std::chrono::steady_clock::time_point In(absl::Duration duration) {
  constexpr absl::Duration kLongest = absl::Hours(24 * 365);
  return std::chrono::steady_clock::now() +
         absl::ToChronoMilliseconds(std::min(duration, kLongest));
}

bool WouldBlock(error_code error) {
  return error == asio::error::would_block || error == asio::error::try_again;
}

}  // namespace

HttpConnection::HttpConnection(tcp::socket socket, TlsSession tls, HttpContext& context)
    : context_(context),
      socket_(std::move(socket), std::move(tls)),
      deadline_(socket_.tcp().get_executor()) {}

void HttpConnection::Start() {
  place_ = context_.connections.Add(shared_from_this(), state_);
  error_code error;
  socket_.tcp().non_blocking(true, error);
  if (error) return Close();
  socket_.tcp().set_option(tcp::no_delay(true), error);  // pieces of streams are small
  ExpectRequest(HttpState::kReading);
  Receive();
}

void HttpConnection::Close() {
  if (!open_) return;
  open_ = false;
  CountBody(0);
  error_code ignored;
  socket_.tcp().close(ignored);
  deadline_.cancel();
  output_.clear();
  context_.connections.Remove(place_, state_);
  const auto exchange = std::exchange(exchange_, nullptr);
  if (exchange != nullptr) exchange->Close();
}

void HttpConnection::SetState(HttpState state) {
  const HttpState from = std::exchange(state_, state);
  context_.connections.Move(place_, from, state);
}

void HttpConnection::SetDeadline(TimePoint deadline) {
  if (deadline_.expiry() == deadline) return;
  deadline_.expires_at(deadline);
  deadline_.async_wait([this, self = shared_from_this()](error_code error) {
    const bool moved = deadline_.expiry() > std::chrono::steady_clock::now();
    if (!error && open_ && !moved) OnDeadline();
  });
}

void HttpConnection::OnDeadline() {
  if (state_ == HttpState::kReading && parser_->is_header_done()) {
    return Refuse({408, StrCat("the request was not complete within ",
                               absl::FormatDuration(context_.limits.io_timeout))});
  }
  if (state_ != HttpState::kAnswering) return Close();
  Advance();
  if (!open_ || state_ != HttpState::kAnswering) return;
  if (streamed_) return Close();
  exchange_->Close();
  Refuse({504, StrCat("there was no answer within ",
                      absl::FormatDuration(context_.limits.answer_timeout))});
}

void HttpConnection::ExpectRequest(HttpState state) {
  const HttpLimits& limits = context_.limits;
  parser_.emplace();
  parser_->header_limit(static_cast<uint32_t>(limits.max_request_bytes));
  parser_->body_limit(limits.max_body_bytes);
  head_bytes_ = 0;
  SetState(state);
  SetDeadline(In(state == HttpState::kIdle ? limits.idle_timeout : limits.io_timeout));
}

void HttpConnection::Read() {
  if (std::exchange(waits_to_read_, true)) return;
  socket_.tcp().async_wait(socket_.read_wait(),
                           [this, self = shared_from_this()](error_code error) {
                             waits_to_read_ = false;
                             if (!open_) return;
                             error ? Close() : Receive();
                           });
}

void HttpConnection::Receive() {
  error_code error;
  const size_t size = socket_.Read(asio::buffer(context_.input), error);
  if (WouldBlock(error)) return Read();
  if (error && state_ == HttpState::kAnswering) {
    Advance();  // A client may close its side once it has sent the request.
    if (state_ == HttpState::kAnswering) Close();
    return;
  }
  if (error && state_ == HttpState::kWriting) options_.keep_alive = false;
  if (error && state_ != HttpState::kWriting) return Close();
  if (state_ == HttpState::kDraining) return Read();

  input_.append(context_.input, 0, size);
  switch (state_) {
    case HttpState::kAnswering:  // Reading on notices that the client goes away.
      if (input_.size() < context_.limits.max_request_bytes) Read();
      return;
    case HttpState::kIdle:
      SetState(HttpState::kReading);
      SetDeadline(In(context_.limits.io_timeout));
      return Parse();
    case HttpState::kReading:
      return Parse();
    default:
      return;
  }
}

void HttpConnection::Parse() {
  const HttpLimits& limits = context_.limits;
  while (!input_.empty()) {
    error_code error;
    const bool in_head = !parser_->is_header_done();
    // A chunked body ends with at least 5 bytes. The parser asserts that it gets them together.
    if (!in_head && parser_->chunked() && input_.size() < 5) break;
    const size_t used = parser_->put(asio::buffer(input_), error);
    input_.erase(0, used);
    if (in_head) head_bytes_ += used;
    if (head_bytes_ > 2 * limits.max_request_bytes) error = http::error::header_limit;
    if (error == http::error::need_more) break;
    if (error) return Refuse(RefusalOf(*parser_, error, limits));
    if (in_head && parser_->is_header_done()) {
      std::optional<HttpResponse> answer = AnswerToHead();
      if (answer.has_value()) return AnswerAndClose(*std::move(answer));
      parser_->eager(true);
      if (!parser_->is_done() && ExpectsContinue(parser_->get())) SendContinue();
      if (!open_) return;
    }
    if (!CountBody(parser_->get().body().size())) {
      return Refuse({503, "too many bytes of requests are being received; retry later"});
    }
    if (parser_->is_done()) return Handle();
  }
  // What is left is an incomplete line.
  if (input_.size() > 2 * limits.max_request_bytes) return Refuse(HeaderRefusal(limits));
  Read();
}

std::optional<HttpResponse> HttpConnection::AnswerToHead() const {
  const HttpLimits& limits = context_.limits;
  const HttpRefusal refusal = RefusalOf(*parser_, limits);
  if (refusal.status != 0) return RefusalAnswer(refusal, limits);
  if (parser_->is_done() || limits.check_head == nullptr) return std::nullopt;
  return limits.check_head(ToHttpRequest(parser_->get()));
}

void HttpConnection::SendContinue() {
  // Part of the output: a TLS session sends what it has begun before anything else.
  constexpr char kContinue[] = "HTTP/1.1 100 Continue\r\n\r\n";
  output_.emplace_back(kContinue);
  continue_unsent_ = output_.back().size();
  Write();
}

bool HttpConnection::CountBody(size_t bytes) {
  context_.body_bytes += bytes - body_bytes_;
  body_bytes_ = bytes;
  return context_.body_bytes <= kBodiesAtOnce * context_.limits.max_body_bytes;
}

void HttpConnection::Handle() {
  options_.keep_alive = parser_->keep_alive() && parser_->get().version() >= 11 &&
                        context_.limits.idle_timeout > absl::ZeroDuration();
  StartAnswer();
  HttpRequest request = ToHttpRequest(parser_->release());
  parser_.reset();
  CountBody(0);
  const std::string path = request.path;
  try {
    context_.handler(std::move(request), ReplyTo(exchange_));
  } catch (const std::exception& error) {
    FRESHET_LOG(Error) << "event=http_failed path=" << LogQuoted(path)
                       << " error=" << LogQuoted(error.what());
  }
  Advance();
  if (open_ && state_ == HttpState::kAnswering) Read();
}

void HttpConnection::Refuse(const HttpRefusal& refusal) {
  AnswerAndClose(RefusalAnswer(refusal, context_.limits));
}

void HttpConnection::AnswerAndClose(HttpResponse answer) {
  options_.keep_alive = false;
  StartAnswer();
  parser_.reset();
  CountBody(0);
  exchange_->Send(std::move(answer));
  Advance();
}

void HttpConnection::StartAnswer() {
  if (parser_.has_value()) {
    options_.head = parser_->get().method() == http::verb::head;
    options_.chunked = parser_->get().version() >= 11;
  }
  options_.max_buffered_bytes = context_.limits.max_buffered_bytes;
  if (input_.empty()) input_.shrink_to_fit();  // the answer and the next request may take long
  auto wake = [thread = context_.thread, waiting = weak_from_this()] {
    thread->Post([waiting] {
      const HttpConnectionPtr connection = waiting.lock();
      if (connection != nullptr) connection->Advance();
    });
  };
  exchange_ = std::make_shared<HttpExchange>(options_, context_.thread, std::move(wake));
  streamed_ = false;
  answer_by_ = In(context_.limits.answer_timeout);
  SetState(HttpState::kAnswering);
  SetDeadline(answer_by_);
}

void HttpConnection::Advance() {
  if (!open_ || state_ != HttpState::kAnswering) return;
  HttpExchange::Output output = exchange_->Take();
  if (output.phase == HttpExchange::Phase::kCut) return Close();
  streamed_ = output.streamed;
  for (std::string& bytes : output.bytes) output_.push_back(std::move(bytes));
  if (output.phase == HttpExchange::Phase::kComplete) {
    SetState(HttpState::kWriting);
    if (!streamed_) SetDeadline(In(context_.limits.io_timeout));
  }
  if (!waits_to_write_) Write();
}

void HttpConnection::Write() {
  if (!output_.empty()) {
    std::array<asio::const_buffer, kBuffersAtOnce> buffers;
    const size_t count = std::min(kBuffersAtOnce, output_.size());
    for (size_t i = 0; i < count; ++i) buffers[i] = asio::buffer(output_[i]);
    buffers[0] += sent_;
    error_code error;
    const size_t size = socket_.Write({buffers.data(), count}, error);
    if (error && !WouldBlock(error)) return Close();
    const size_t of_continue = std::min(continue_unsent_, size);
    continue_unsent_ -= of_continue;
    if (size > of_continue) exchange_->Sent(size - of_continue);
    sent_ += size;
    while (!output_.empty() && sent_ >= output_.front().size()) {
      sent_ -= output_.front().size();
      output_.pop_front();
    }
  }
  if (output_.empty() && state_ == HttpState::kWriting) return FinishAnswer();
  const bool answering = exchange_ != nullptr;
  if (output_.empty()) {
    if (answering) SetDeadline(answer_by_);
    return;
  }
  if (answering && streamed_) SetDeadline(std::min(answer_by_, In(context_.limits.io_timeout)));
  waits_to_write_ = true;
  socket_.tcp().async_wait(socket_.write_wait(),
                           [this, self = shared_from_this()](error_code error) {
                             waits_to_write_ = false;
                             if (!open_) return;
                             error ? Close() : Write();
                           });
}

void HttpConnection::FinishAnswer() {
  exchange_.reset();
  if (!options_.keep_alive || context_.connections.draining()) {
    // Reads until the client closes. Closing with unread bytes would reset the connection, and the
    // client could lose the answer.
    socket_.EndWriting();
    input_.clear();
    SetState(HttpState::kDraining);
    SetDeadline(In(context_.limits.io_timeout));
    return Read();
  }
  if (input_.empty()) {
    ExpectRequest(HttpState::kIdle);
    return Read();
  }
  ExpectRequest(HttpState::kReading);
  // Not parsed here, because the depth of the stack must not depend on the number of requests.
  asio::post(socket_.tcp().get_executor(), [this, self = shared_from_this()] {
    if (open_ && state_ == HttpState::kReading) Parse();
  });
}

}  // namespace freshet::runtime
