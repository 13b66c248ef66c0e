#include "trainer/ranks/shard_sender.h"

#include <algorithm>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "base/log.h"
#include "base/proto_time.h"
#include "base/status_macros.h"
#include "base/str_cat.h"
#include "base/utf8.h"

namespace freshet {

using trainer::v1::SendShard;
using trainer::v1::ShardSent;

namespace {

constexpr size_t kMostShards = 2;
constexpr size_t kMostOrders = 2;
constexpr size_t kMostRefused = 100;
constexpr size_t kMostMessage = 200;
constexpr absl::Duration kOrderWait = absl::Minutes(1);
constexpr absl::Duration kMostTime = absl::Hours(1);

}  // namespace

ShardSender::ShardSender(OpenCommunicatorBackend open, const Clock& clock,
                         std::function<void(const ShardSent&)> on_sent)
    : open_(std::move(open)),
      clock_(clock),
      on_sent_(std::move(on_sent)),
      sender_(clock),
      thread_([this] { Run(); }) {}

ShardSender::~ShardSender() {
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

absl::Status ShardSender::Stage(int64_t number, const std::vector<ByteRange>& ranges,
                                absl::FunctionRef<absl::Status(std::span<std::byte>)> copy) {
  {
    const MutexLock lock(mu_);
    while (shards_.size() >= kMostShards) shards_.pop_front();
  }
  const absl::Cleanup decided = [&] {
    const MutexLock lock(mu_);
    newest_ = number;
    changed_.NotifyAll();
  };
  Shard shard{number, {}, nullptr};
  size_t size = 0;
  for (const ByteRange& range : ranges) {
    shard.sizes.push_back(range.size);
    size += static_cast<size_t>(range.size);
  }
  FRESHET_ASSIGN_OR_RETURN(const std::shared_ptr<WeightBuffer> bytes, pool_.Get(size));
  FRESHET_RETURN_IF_ERROR(copy(std::span(bytes->data.get(), size)));
  shard.bytes = bytes;
  const MutexLock lock(mu_);
  shards_.push_back(std::move(shard));
  return absl::OkStatus();
}

void ShardSender::Send(const SendShard& order) {
  const MutexLock lock(mu_);
  if (orders_.size() < kMostOrders) {
    orders_.push_back(order);
  } else if (refused_.size() < kMostRefused) {
    refused_.push_back(order.id());
  }
  changed_.NotifyAll();
}

void ShardSender::Run() {
  while (true) {
    SendShard order;
    std::vector<int64_t> refused;
    {
      const MutexLock lock(mu_);
      sending_.clear();
      while (orders_.empty() && !ends_) changed_.WaitFor(mu_, kOrderWait);
      if (ends_) return;
      order = std::move(orders_.front());
      orders_.pop_front();
      sending_ = order.group();
      refused.swap(refused_);
    }
    for (const int64_t id : refused) {
      Answer(id, absl::ResourceExhaustedError("this rank has other shards to send"));
    }
    const absl::Status sent = SendNow(order);
    if (!sent.ok()) {
      FRESHET_LOG(Warning) << "event=shard_not_sent shard=" << order.shard()
                           << " reason=" << LogQuoted(Message(sent));
    }
    Answer(order.id(), sent);
  }
}

// It may still be staged.
absl::StatusOr<ShardSender::Shard> ShardSender::AwaitShard(int64_t number, absl::Time deadline) {
  const MutexLock lock(mu_);
  while (newest_ < number && !ends_) {
    const absl::Duration left = deadline - clock_.Now();
    if (left <= absl::ZeroDuration()) {
      return absl::DeadlineExceededError("the shard was not staged in time");
    }
    changed_.WaitFor(mu_, std::min(left, kOrderWait));
  }
  const auto kept = std::ranges::find(shards_, number, &Shard::number);
  if (kept == shards_.end()) return NotFound("shard ", number, " is not here");
  return *kept;
}

absl::Status ShardSender::SendNow(const SendShard& order) {
  const absl::Time deadline =
      clock_.Now() + std::clamp(FromDuration(order.timeout()), absl::ZeroDuration(), kMostTime);
  if (backend_ == nullptr || backend_name_ != order.backend()) {
    if (!open_) return absl::UnimplementedError("this rank has no broadcast backend");
    FRESHET_ASSIGN_OR_RETURN(backend_, open_(order.backend()));
    backend_name_ = order.backend();
  }
  FRESHET_ASSIGN_OR_RETURN(
      const Shard shard,
      AwaitShard(order.shard(),
                 std::min(deadline, clock_.Now() + FromDuration(order.silence_timeout()))));
  if (order.piece_bytes() <= 0) return InvalidArgument("piece_bytes is ", order.piece_bytes());
  SendParts parts;
  const std::byte* at = shard.bytes->data.get();
  for (const int64_t size : shard.sizes) {
    parts.emplace_back(at, static_cast<size_t>(size));
    at += size;
  }
  return sender_.Send(*backend_,
                      {order.group(), order.size(), order.rendezvous(), order.piece_bytes(),
                       FromDuration(order.silence_timeout())},
                      parts, deadline, /*on_bytes=*/{});
}

void ShardSender::Answer(int64_t id, const absl::Status& status) const {
  ShardSent sent;
  sent.set_id(id);
  sent.set_code(static_cast<int32_t>(status.code()));
  sent.set_message(ValidUtf8(Message(status), kMostMessage));
  on_sent_(sent);
}

}  // namespace freshet
