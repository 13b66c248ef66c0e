#include "trainer/ranks/share_sender.h"

#include <algorithm>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "base/log.h"
#include "base/proto_time.h"
#include "base/status_macros.h"
#include "base/str_cat.h"

namespace freshet {

using trainer::v1::SendShare;
using trainer::v1::ShareSent;

namespace {

constexpr size_t kMostShares = 2;
constexpr size_t kMostOrders = 2;
constexpr absl::Duration kOrderWait = absl::Minutes(1);
constexpr absl::Duration kMostTime = absl::Hours(1);

}  // namespace

ShareSender::ShareSender(OpenCommunicatorBackend open, const Clock& clock,
                         std::function<void(const ShareSent&)> on_sent)
    : open_(std::move(open)),
      clock_(clock),
      on_sent_(std::move(on_sent)),
      sender_(clock),
      thread_([this] { Run(); }) {}

ShareSender::~ShareSender() {
  std::string sending;
  {
    const MutexLock lock(mu_);
    ends_ = true;
    sending = sending_;
    changed_.NotifyAll();
  }
  if (!sending.empty()) sender_.Abort(sending, "this rank leaves");
  thread_.join();
}

absl::Status ShareSender::Stage(int64_t number, const std::vector<ByteRange>& ranges,
                                absl::FunctionRef<absl::Status(std::span<std::byte>)> copy) {
  {
    const MutexLock lock(mu_);
    while (shares_.size() >= kMostShares) shares_.pop_front();
  }
  const absl::Cleanup decided = [&] {
    const MutexLock lock(mu_);
    newest_ = number;
    changed_.NotifyAll();
  };
  Share share{number, {}, nullptr};
  size_t size = 0;
  for (const ByteRange& range : ranges) {
    share.sizes.push_back(range.size);
    size += static_cast<size_t>(range.size);
  }
  FRESHET_ASSIGN_OR_RETURN(const std::shared_ptr<WeightBuffer> bytes, pool_.Get(size));
  FRESHET_RETURN_IF_ERROR(copy(std::span(bytes->data.get(), size)));
  share.bytes = bytes;
  const MutexLock lock(mu_);
  shares_.push_back(std::move(share));
  return absl::OkStatus();
}

void ShareSender::Send(const SendShare& order) {
  {
    const MutexLock lock(mu_);
    if (orders_.size() < kMostOrders) {
      orders_.push_back(order);
      changed_.NotifyAll();
      return;
    }
  }
  Answer(order.id(), absl::ResourceExhaustedError("this rank still has other shares to send"));
}

void ShareSender::Run() {
  while (true) {
    SendShare order;
    {
      const MutexLock lock(mu_);
      sending_.clear();
      while (orders_.empty() && !ends_) changed_.WaitFor(mu_, kOrderWait);
      if (ends_) return;
      order = std::move(orders_.front());
      orders_.pop_front();
      sending_ = order.group();
    }
    const absl::Status sent = SendNow(order);
    if (!sent.ok()) {
      FRESHET_LOG(Warning) << "event=share_not_sent share=" << order.share()
                           << " reason=" << LogQuoted(Message(sent));
    }
    Answer(order.id(), sent);
  }
}

// It may still be staged.
absl::StatusOr<ShareSender::Share> ShareSender::AwaitShare(int64_t number, absl::Time deadline) {
  const MutexLock lock(mu_);
  while (newest_ < number && !ends_) {
    const absl::Duration left = deadline - clock_.Now();
    if (left <= absl::ZeroDuration()) {
      return absl::DeadlineExceededError("the share was not staged in time");
    }
    changed_.WaitFor(mu_, std::min(left, kOrderWait));
  }
  const auto kept = std::ranges::find(shares_, number, &Share::number);
  if (kept == shares_.end()) return NotFound("share ", number, " is not here");
  return *kept;
}

absl::Status ShareSender::SendNow(const SendShare& order) {
  const absl::Time deadline =
      clock_.Now() + std::clamp(FromDuration(order.timeout()), absl::ZeroDuration(), kMostTime);
  if (backend_ == nullptr || backend_name_ != order.backend()) {
    if (!open_) return absl::UnimplementedError("this rank has no broadcast backend");
    FRESHET_ASSIGN_OR_RETURN(backend_, open_(order.backend()));
    backend_name_ = order.backend();
  }
  FRESHET_ASSIGN_OR_RETURN(
      const Share share,
      AwaitShare(order.share(),
                 std::min(deadline, clock_.Now() + FromDuration(order.silence_timeout()))));
  if (order.piece_bytes() <= 0) return InvalidArgument("piece_bytes is ", order.piece_bytes());
  SendParts parts;
  const std::byte* at = share.bytes->data.get();
  for (const int64_t size : share.sizes) {
    parts.emplace_back(at, static_cast<size_t>(size));
    at += size;
  }
  return sender_.Send(*backend_,
                      {order.group(), order.size(), order.rendezvous(), order.piece_bytes(),
                       FromDuration(order.silence_timeout())},
                      parts, deadline, /*on_bytes=*/{});
}

void ShareSender::Answer(int64_t id, const absl::Status& status) const {
  ShareSent sent;
  sent.set_id(id);
  sent.set_code(static_cast<int32_t>(status.code()));
  sent.set_message(Message(status).substr(0, 1000));
  on_sent_(sent);
}

}  // namespace freshet
