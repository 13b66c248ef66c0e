#include "services/runtime/http_exchange.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/str_cat.h"
#include "services/runtime/http_message.h"

namespace freshet::runtime {
namespace {

constexpr size_t kCoalesceBytes = 64 << 10;

class ExchangeReply final : public HttpReply {
 public:
  explicit ExchangeReply(std::shared_ptr<HttpExchange> exchange) : exchange_(std::move(exchange)) {}
  ~ExchangeReply() override { exchange_->Abandon(); }
  ExchangeReply(const ExchangeReply&) = delete;
  ExchangeReply& operator=(const ExchangeReply&) = delete;

  void Send(HttpResponse response) override { exchange_->Send(std::move(response)); }
  void StartStream(HttpResponse head) override { exchange_->StartStream(std::move(head)); }
  bool Write(std::string piece) override { return exchange_->Write(piece); }
  void Finish() override { exchange_->Finish(); }
  void OnClosed(std::function<void()> closed) override { exchange_->OnClosed(std::move(closed)); }

 private:
  const std::shared_ptr<HttpExchange> exchange_;
};

}  // namespace

bool HttpThread::Post(Function function) {
  MutexLock lock(mu_);
  if (!post_) return false;
  post_(std::move(function));
  return true;
}

void HttpThread::Stop() {
  MutexLock lock(mu_);
  post_ = nullptr;
}

void HttpExchange::Send(HttpResponse response) {
  if (response.status != 200 && response.body.empty()) {
    response.body = StrCat(ReasonPhrase(response.status), "\n");
  }
  std::function<void()> unneeded;  // destroyed without the lock
  {
    MutexLock lock(mu_);
    if (phase_ != Phase::kWaiting) return;
    phase_ = Phase::kComplete;
    unneeded.swap(closed_);
    Give(ResponseHead(response, response.body.size(), options_.keep_alive));
    if (!options_.head) Give(std::move(response.body));
    if (!MustWake()) return;
  }
  wake_();
}

void HttpExchange::StartStream(HttpResponse head) {
  {
    MutexLock lock(mu_);
    if (phase_ != Phase::kWaiting) return;
    phase_ = Phase::kStreaming;
    streamed_ = true;
    Give(StreamHead(head, options_.chunked, options_.keep_alive));
    GivePiece(head.body);
    if (!MustWake()) return;
  }
  wake_();
}

bool HttpExchange::Write(const std::string& piece) {
  bool open = true;
  {
    MutexLock lock(mu_);
    if (phase_ != Phase::kStreaming) return false;
    if (unsent_ > 0 && unsent_ + piece.size() > options_.max_buffered_bytes) {
      phase_ = Phase::kCut;
      given_.clear();
      open = false;
    } else {
      GivePiece(piece);
    }
    if (!MustWake()) return open;
  }
  wake_();
  return open;
}

void HttpExchange::Finish() {
  std::function<void()> unneeded;  // destroyed without the lock
  {
    MutexLock lock(mu_);
    if (phase_ != Phase::kStreaming) return;
    phase_ = Phase::kComplete;
    unneeded.swap(closed_);
    if (options_.chunked && !options_.head) Give("0\r\n\r\n");
    if (!MustWake()) return;
  }
  wake_();
}

void HttpExchange::OnClosed(std::function<void()> closed) {
  {
    MutexLock lock(mu_);
    if (phase_ == Phase::kComplete) return;
    if (phase_ != Phase::kGone) {
      closed_.swap(closed);
      return;
    }
  }
  if (!thread_->Post(closed)) closed();
}

void HttpExchange::Abandon() {
  std::function<void()> unneeded;  // destroyed without the lock
  bool cut = false;
  {
    MutexLock lock(mu_);
    unneeded.swap(closed_);
    cut = phase_ == Phase::kStreaming;
    if (cut) phase_ = Phase::kCut;
    if (cut && !MustWake()) return;
  }
  cut ? wake_() : Send({.status = 500});  // ignored if there is an answer
}

HttpExchange::Output HttpExchange::Take() {
  MutexLock lock(mu_);
  woken_ = false;
  return {.phase = phase_, .streamed = streamed_, .bytes = std::exchange(given_, {})};
}

void HttpExchange::Sent(size_t bytes) {
  MutexLock lock(mu_);
  unsent_ -= bytes;
}

void HttpExchange::Close() {
  std::function<void()> closed;
  {
    MutexLock lock(mu_);
    if (phase_ == Phase::kComplete) return;
    phase_ = Phase::kGone;
    given_.clear();
    closed.swap(closed_);
  }
  if (closed) closed();
}

void HttpExchange::Give(std::string bytes) {
  if (bytes.empty()) return;
  unsent_ += bytes.size();
  if (!given_.empty() && given_.back().size() + bytes.size() <= kCoalesceBytes) {
    given_.back() += bytes;
  } else {
    given_.push_back(std::move(bytes));
  }
}

void HttpExchange::GivePiece(const std::string& piece) {
  if (piece.empty() || options_.head) return;  // an empty chunk would end the stream
  Give(options_.chunked ? StrCat(absl::Hex(piece.size()), "\r\n", piece, "\r\n") : piece);
}

bool HttpExchange::MustWake() { return !std::exchange(woken_, true); }

std::shared_ptr<HttpReply> ReplyTo(std::shared_ptr<HttpExchange> exchange) {
  return std::make_shared<ExchangeReply>(std::move(exchange));
}

}  // namespace freshet::runtime
