#include "weights/range_sender.h"

#include <algorithm>
#include <utility>

#include "base/status_macros.h"
#include "weights/transfer_time.h"

namespace freshet {
namespace {

constexpr char kAborted[] = "the group was aborted";
constexpr size_t kMostAborted = 8;

}  // namespace

bool RangeSender::AbortedLocked(const std::string& group) const {
  return std::ranges::find(aborted_, group) != aborted_.end();
}

absl::StatusOr<std::shared_ptr<Communicator>> RangeSender::Join(CommunicatorBackend& backend,
                                                                const SendOrder& order,
                                                                const SendParts& parts,
                                                                absl::Time deadline) {
  GroupPlace place;
  std::shared_ptr<Communicator> former;  // closed without the lock
  {
    const MutexLock lock(mu_);
    if (AbortedLocked(order.group)) return absl::AbortedError(kAborted);
    if (communicator_ != nullptr && group_ == order.group) return communicator_;
    former = std::exchange(communicator_, nullptr);
    group_ = order.group;
    connecting_ = std::stop_source();
    place.stop = connecting_.get_token();
  }
  former = nullptr;
  if (order.rendezvous.empty()) {
    return absl::UnavailableError("this sender does not belong to the group");
  }
  place.size = order.size;
  place.rendezvous = order.rendezvous;
  for (const std::span<const std::byte> part : parts) {
    place.staged_bytes = std::max(place.staged_bytes,
                                  std::min(static_cast<int64_t>(part.size()), order.piece_bytes));
  }
  place.timeout = std::min(order.silence_timeout, deadline - clock_.Now());
  if (place.timeout <= absl::ZeroDuration()) {
    return absl::DeadlineExceededError("no time left to connect the group");
  }
  FRESHET_ASSIGN_OR_RETURN(std::shared_ptr<Communicator> connected, backend.Connect(place));
  const MutexLock lock(mu_);
  if (AbortedLocked(order.group)) return absl::AbortedError(kAborted);
  communicator_ = std::move(connected);
  return communicator_;
}

absl::Status RangeSender::Send(CommunicatorBackend& backend, const SendOrder& order,
                               const SendParts& parts, absl::Time deadline,
                               const std::function<void(int64_t)>& on_bytes) {
  FRESHET_ASSIGN_OR_RETURN(const std::shared_ptr<Communicator> communicator,
                           Join(backend, order, parts, deadline));
  for (const std::span<const std::byte> part : parts) {
    for (size_t at = 0; at < part.size(); at += static_cast<size_t>(order.piece_bytes)) {
      const size_t size = std::min(static_cast<size_t>(order.piece_bytes), part.size() - at);
      // The root of a broadcast only reads.
      auto* const data = const_cast<std::byte*>(part.data()) + at;
      const absl::Duration timeout = std::min(
          StepTime(order.silence_timeout, static_cast<int64_t>(size)), deadline - clock_.Now());
      FRESHET_RETURN_IF_ERROR(communicator->Broadcast({data, size}, /*root=*/0, timeout));
      if (on_bytes) on_bytes(static_cast<int64_t>(size));
    }
  }
  return absl::OkStatus();
}

void RangeSender::Abort(const std::string& group, const std::string& reason) {
  std::shared_ptr<Communicator> connected;
  {
    const MutexLock lock(mu_);
    aborted_.push_back(group);
    if (aborted_.size() > kMostAborted) aborted_.pop_front();
    if (group_ != group) return;
    connecting_.request_stop();
    connected = communicator_;
  }
  if (connected != nullptr) connected->Abort(reason);
}

void RangeSender::Leave() {
  std::shared_ptr<Communicator> left;
  const MutexLock lock(mu_);
  left.swap(communicator_);
}

bool RangeSender::Works(const std::string& group) const {
  std::shared_ptr<Communicator> connected;
  {
    const MutexLock lock(mu_);
    if (group_ != group || AbortedLocked(group)) return false;
    connected = communicator_;
  }
  return connected != nullptr && connected->error().ok();
}

}  // namespace freshet
