#include "services/runtime/http_calls.h"

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/address.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/thread_pool.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/error.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http/error.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/string_body.hpp>
#include <functional>
#include <map>
#include <thread>
#include <utility>

#include "base/mutex.h"
#include "base/status_macros.h"
#include "base/str_cat.h"
#include "services/runtime/endpoint_options.h"

namespace freshet::runtime {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using asio::ip::tcp;
using boost::system::error_code;

constexpr size_t kMaxCalls = 65'536;
constexpr uint32_t kMaxHeaderBytes = 16'384;

absl::Status CallError(error_code error) {
  if (error == beast::error::timeout) {
    return StatusOf(absl::StatusCode::kDeadlineExceeded, "no complete answer in time");
  }
  if (error == http::error::body_limit || error == http::error::header_limit) {
    return ResourceExhausted("the answer is too large");
  }
  if (error == http::error::end_of_stream || error == http::error::partial_message) {
    return StatusOf(absl::StatusCode::kUnavailable,
                    "the connection closed before the answer's end");
  }
  if (error.category() == http::make_error_code(http::error::bad_version).category()) {
    return Internal("the answer is not HTTP: ", error.message());
  }
  return StatusOf(absl::StatusCode::kUnavailable, error.message());
}

using Report = std::function<void(HttpCallEvent)>;

// One call. Used only by the thread of its io_context.
class Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(asio::io_context& io, int64_t number, HttpCall call, std::string request,
             Report report)
      : number_(number),
        max_bytes_(call.max_bytes),
        request_(std::move(request)),
        report_(std::move(report)),
        stream_(io),
        lookup_deadline_(io) {
    parser_.header_limit(kMaxHeaderBytes);
    parser_.body_limit(max_bytes_);
    stream_.expires_after(absl::ToChronoMilliseconds(call.timeout));
    lookup_deadline_.expires_after(absl::ToChronoMilliseconds(call.timeout));
  }

  // Waits for TakeAddress, until the deadline.
  void AwaitAddress() {
    lookup_deadline_.async_wait([self = shared_from_this()](error_code error) {
      if (!error) self->End(CallError(beast::error::timeout));
    });
  }
  void TakeAddress(const absl::StatusOr<tcp::endpoint>& server) {
    lookup_deadline_.cancel();
    if (report_ == nullptr) return;
    if (!server.ok()) return End(server.status());
    Begin(*server);
  }

  void Begin(const tcp::endpoint& server) {
    stream_.async_connect(server, [self = shared_from_this()](error_code error) {
      if (error) return self->End(CallError(error));
      error_code ignored;
      self->stream_.socket().set_option(tcp::no_delay(true), ignored);
      asio::async_write(self->stream_, asio::buffer(self->request_),
                        [self](error_code failed, size_t) {
                          if (failed) return self->End(CallError(failed));
                          self->ReadHeader();
                        });
    });
  }
  void Close() {
    report_ = nullptr;
    lookup_deadline_.cancel();
    stream_.cancel();
    error_code ignored;
    stream_.socket().close(ignored);
  }

 private:
  void ReadHeader() {
    http::async_read_header(stream_, buffer_, parser_,
                            [self = shared_from_this()](error_code error, size_t) {
                              if (error) return self->End(CallError(error));
                              self->Deliver();
                            });
  }
  void ReadSome() {
    http::async_read_some(stream_, buffer_, parser_,
                          [self = shared_from_this()](error_code error, size_t) {
                            if (error) return self->End(CallError(error));
                            self->Deliver();
                          });
  }
  // Reports what has been read and reads on.
  void Deliver() {
    if (report_ == nullptr) return;
    HttpCallEvent event;
    event.call = number_;
    event.status = static_cast<int>(parser_.get().result_int());
    event.data = std::exchange(parser_.get().body(), {});
    received_ += event.data.size();
    if (received_ > max_bytes_) return End(ResourceExhausted("the answer is too large"));
    event.end = parser_.is_done();
    report_(std::move(event));
    parser_.is_done() ? Close() : ReadSome();
  }
  void End(absl::Status why) {
    if (report_ == nullptr) return;
    HttpCallEvent event;
    event.call = number_;
    event.status = parser_.is_header_done() ? static_cast<int>(parser_.get().result_int()) : 0;
    event.end = true;
    event.error = std::move(why);
    report_(std::move(event));
    Close();
  }

  const int64_t number_;
  const size_t max_bytes_;
  const std::string request_;
  Report report_;  // empty after the end
  size_t received_ = 0;
  beast::tcp_stream stream_;
  asio::steady_timer lookup_deadline_;
  beast::flat_buffer buffer_;
  http::response_parser<http::string_body> parser_;
};

class AsioHttpCalls final : public HttpCalls {
 public:
  // `server` is used without a `lookup`.
  AsioHttpCalls(std::string address, HostPort where, tcp::endpoint server, HostLookup lookup)
      : address_(std::move(address)),
        where_(std::move(where)),
        server_(std::move(server)),
        lookup_(std::move(lookup)),
        work_(asio::make_work_guard(io_)),
        thread_([this] { io_.run(); }) {}
  ~AsioHttpCalls() override {
    lookups_.stop();
    lookups_.join();
    io_.stop();
    thread_.join();
  }

  int64_t Start(HttpCall call) override {
    const int64_t number = ++last_;
    {
      MutexLock lock(mu_);
      if (open_.size() >= kMaxCalls) {
        events_[number] = {.call = number,
                           .end = true,
                           .error = ResourceExhausted(kMaxCalls, " calls are in progress")};
        return number;
      }
      open_[number] = nullptr;
    }
    std::string request = StrCat(call.method, " ", call.target, " HTTP/1.1\r\nHost: ", address_,
                                 "\r\nConnection: close\r\n");
    if (!call.body.empty() || call.method == "POST") {
      request +=
          StrCat("Content-Type: application/json\r\nContent-Length: ", call.body.size(), "\r\n");
    }
    request += StrCat("\r\n", call.body);
    auto connection =
        std::make_shared<Connection>(io_, number, std::move(call), std::move(request),
                                     [this](HttpCallEvent event) { Add(std::move(event)); });
    {
      MutexLock lock(mu_);
      open_[number] = connection;
    }
    if (lookup_ == nullptr) {
      asio::post(io_, [connection, server = server_] { connection->Begin(server); });
      return number;
    }
    asio::post(io_, [connection] { connection->AwaitAddress(); });
    {
      MutexLock lock(mu_);
      await_address_.push_back(std::move(connection));
      if (await_address_.size() > 1) return number;  // the look-up that is due is for it, too
    }
    asio::post(lookups_, [this] { GiveAddress(); });
    return number;
  }

  void Stop(int64_t call) override {
    std::shared_ptr<Connection> connection;
    {
      MutexLock lock(mu_);
      events_.erase(call);
      const auto found = open_.find(call);
      if (found == open_.end()) return;
      connection = std::move(found->second);
      open_.erase(found);
    }
    asio::post(io_, [connection] { connection->Close(); });
  }

  std::vector<HttpCallEvent> Take(absl::Duration wait) override {
    std::map<int64_t, HttpCallEvent> taken;
    {
      MutexLock lock(mu_);
      if (events_.empty() && wait > absl::ZeroDuration()) added_.WaitFor(mu_, wait);
      taken.swap(events_);
    }
    std::vector<HttpCallEvent> events;
    events.reserve(taken.size());
    for (auto& [number, event] : taken) events.push_back(std::move(event));
    return events;
  }

 private:
  absl::StatusOr<tcp::endpoint> LookUp() const {
    FRESHET_ASSIGN_OR_RETURN(const std::string host, lookup_(where_.host));
    error_code error;
    const asio::ip::address ip = asio::ip::make_address(host, error);
    if (error) return Internal(where_.host, " is looked up as ", host, ", not as an address");
    return tcp::endpoint(ip, static_cast<uint16_t>(where_.port));
  }

  void GiveAddress() ABSL_LOCKS_EXCLUDED(mu_) {
    const absl::StatusOr<tcp::endpoint> server = LookUp();
    std::vector<std::shared_ptr<Connection>> waiting;
    {
      MutexLock lock(mu_);
      waiting.swap(await_address_);
    }
    for (auto& connection : waiting) {
      asio::post(io_, [one = std::move(connection), server] { one->TakeAddress(server); });
    }
  }

  void Add(HttpCallEvent event) ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(mu_);
    const auto found = open_.find(event.call);
    if (found == open_.end()) return;  // stopped
    if (event.end) open_.erase(found);
    HttpCallEvent& pending = events_[event.call];
    pending.call = event.call;
    pending.status = event.status;
    pending.data += event.data;
    pending.end = event.end;
    pending.error = std::move(event.error);
    added_.NotifyAll();
  }

  const std::string address_;
  const HostPort where_;
  const tcp::endpoint server_;
  const HostLookup lookup_;
  asio::io_context io_{1};  // outlives the connections
  int64_t last_ = 0;
  Mutex mu_;
  CondVar added_;
  std::map<int64_t, std::shared_ptr<Connection>> open_ ABSL_GUARDED_BY(mu_);
  std::map<int64_t, HttpCallEvent> events_ ABSL_GUARDED_BY(mu_);  // by call
  std::vector<std::shared_ptr<Connection>> await_address_ ABSL_GUARDED_BY(mu_);
  asio::executor_work_guard<asio::io_context::executor_type> work_;
  asio::thread_pool lookups_{1};
  std::thread thread_;  // last: it uses the others
};

}  // namespace

absl::StatusOr<std::unique_ptr<HttpCalls>> OpenHttpCalls(const std::string& address,
                                                         HostLookup lookup) {
  auto where = ParseHostPort(address);
  error_code error;
  asio::ip::address ip;
  if (where.has_value() && lookup == nullptr) {
    ip = asio::ip::make_address(where->host == "localhost" ? "127.0.0.1" : where->host, error);
  }
  if (!where.has_value() || error || where->port == 0) {
    return InvalidArgument("\"", address, "\" is not HOST:PORT",
                           lookup == nullptr ? " with a numeric host or localhost" : "");
  }
  const tcp::endpoint server(ip, static_cast<uint16_t>(where->port));
  return std::make_unique<AsioHttpCalls>(address, *std::move(where), server, std::move(lookup));
}

}  // namespace freshet::runtime
