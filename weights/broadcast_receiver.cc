#include "weights/broadcast_receiver.h"

#include <algorithm>
#include <span>
#include <thread>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "base/str_cat.h"
#include "weights/transfer_time.h"

namespace freshet {
namespace {

constexpr int kMaxRanks = 1025;
constexpr size_t kMaxIdBytes = 256;
constexpr int64_t kMaxPieceBytes = int64_t{1} << 30;
constexpr absl::Duration kMaxConnect = absl::Seconds(30);
constexpr char kSuperseded[] = "superseded by a newer call";

}  // namespace

BroadcastReceiver::BroadcastReceiver(OpenCommunicatorBackend open,
                                     std::shared_ptr<WeightSubscriber> subscriber,
                                     const WeightLimits& limits, const Clock& clock,
                                     WeightSyncObserver* observer)
    : open_(std::move(open)),
      subscriber_(std::move(subscriber)),
      limits_(limits),
      clock_(clock),
      observer_(observer) {}

BroadcastReceiver::~BroadcastReceiver() = default;

absl::StatusOr<std::shared_ptr<CommunicatorBackend>> BroadcastReceiver::Backend(
    const std::string& name) {
  {
    MutexLock lock(mu_);
    if (backend_ != nullptr && backend_name_ == name) return backend_;
  }
  if (!open_) return absl::UnimplementedError("this process has no broadcast backend");
  FRESHET_ASSIGN_OR_RETURN(std::shared_ptr<CommunicatorBackend> backend, open_(name));
  MutexLock lock(mu_);
  backend_name_ = name;
  backend_ = std::move(backend);
  return backend_;
}

bool BroadcastReceiver::KeepsLocked(const WeightManifest& manifest) const {
  return content_hash_ == manifest.content_hash && total_bytes_ == manifest.total_bytes &&
         bucket_bytes_ == manifest.bucket_bytes;
}

int64_t BroadcastReceiver::VerifiedLocked(const WeightManifest& manifest) const {
  return KeepsLocked(manifest) ? verified_ : 0;
}

absl::StatusOr<BroadcastReceiver::Reply> BroadcastReceiver::Ask(const WeightManifest& manifest,
                                                                const std::string& backend,
                                                                absl::Time deadline) {
  FRESHET_RETURN_IF_ERROR(CheckManifest(manifest, limits_));
  FRESHET_RETURN_IF_ERROR(subscriber_->Admit(manifest).status());
  FRESHET_RETURN_IF_ERROR(Backend(backend).status());
  std::optional<Running> former;
  {
    MutexLock lock(mu_);
    former = RunningLocked();
  }
  if (former.has_value()) former->Abort(kSuperseded);
  MutexLock lock(mu_);
  while (receiving_) {
    const absl::Duration left = deadline - clock_.Now();
    if (left <= absl::ZeroDuration()) {
      return absl::AbortedError("the former broadcast has not ended yet");
    }
    changed_.WaitFor(mu_, left);
  }
  // It may have come to its end.
  FRESHET_ASSIGN_OR_RETURN(const WeightSubscriber::Admission admission,
                           subscriber_->Admit(manifest));
  if (admission == WeightSubscriber::Admission::kBring) {
    return Reply{false, VerifiedLocked(manifest)};
  }
  buffer_ = nullptr;  // of a version that came another way
  content_hash_.clear();
  verified_ = 0;
  return Reply{true};
}

absl::Status BroadcastReceiver::CheckOrder(const BroadcastOrder& order) const {
  FRESHET_RETURN_IF_ERROR(CheckManifest(order.manifest, limits_));
  if (order.size < 2 || order.size > kMaxRanks || order.rank < 1 || order.rank >= order.size) {
    return InvalidArgument("group.rank is ", order.rank, " of ", order.size,
                           "; it must be from 1 to size - 1, and size at most ", kMaxRanks);
  }
  if (order.group.empty() || order.group.size() > kMaxIdBytes ||
      order.rendezvous.size() > kMaxIdBytes) {
    return InvalidArgument("group.id must have 1 to ", kMaxIdBytes,
                           " bytes, and group.rendezvous at most as many");
  }
  const int64_t bucket = order.manifest.bucket_bytes;
  // A bucket may itself be larger than the limit of a piece.
  if (order.piece_bytes < bucket || order.piece_bytes % bucket != 0 ||
      order.piece_bytes > std::max(kMaxPieceBytes, bucket)) {
    return InvalidArgument("group.piece_bytes is ", order.piece_bytes,
                           "; it must be a multiple of bucket_bytes ", bucket, ", at most ",
                           std::max(kMaxPieceBytes, bucket));
  }
  if (order.first < 0 || order.first > order.manifest.total_bytes || order.first % bucket != 0) {
    return InvalidArgument("group.first is ", order.first,
                           "; it must be a multiple of bucket_bytes ", bucket, ", at most ",
                           order.manifest.total_bytes);
  }
  return absl::OkStatus();
}

absl::StatusOr<int64_t> BroadcastReceiver::Begin(const BroadcastOrder& order, absl::Time deadline,
                                                 const std::function<bool()>& cancelled) {
  if (cancelled()) return absl::AbortedError("the call was cancelled");
  int64_t number = 0;
  std::optional<Running> former;
  {
    MutexLock lock(mu_);
    number = ++newest_;
    former = RunningLocked();
    changed_.NotifyAll();
  }
  if (former.has_value()) former->Abort(kSuperseded);
  MutexLock lock(mu_);
  while (receiving_ && number == newest_ && closed_.empty() && !cancelled()) {
    const absl::Duration left = deadline - clock_.Now();
    if (left <= absl::ZeroDuration()) {
      return absl::DeadlineExceededError("the former broadcast has not ended in time");
    }
    changed_.WaitFor(mu_, left);
  }
  if (!closed_.empty()) return absl::AbortedError(closed_);
  if (cancelled()) return absl::AbortedError("the call was cancelled");
  if (number != newest_) return absl::AbortedError(kSuperseded);
  if (order.first > VerifiedLocked(order.manifest)) {
    return FailedPrecondition("the broadcast starts at byte ", order.first, ", but only ",
                              VerifiedLocked(order.manifest), " bytes of the version are here");
  }
  receiving_ = true;
  connecting_ = std::stop_source();
  return number;
}

void BroadcastReceiver::End() {
  MutexLock lock(mu_);
  receiving_ = false;
  changed_.NotifyAll();
}

absl::Status BroadcastReceiver::Reserve(const BroadcastOrder& order) {
  {
    MutexLock lock(mu_);
    if (buffer_ != nullptr && KeepsLocked(order.manifest)) {
      verified_ = order.first;  // what follows is written again
      return absl::OkStatus();
    }
    content_hash_.clear();
    verified_ = 0;
  }
  buffer_ = nullptr;
  FRESHET_ASSIGN_OR_RETURN(buffer_, pool_.Get(static_cast<size_t>(order.manifest.total_bytes)));
  MutexLock lock(mu_);
  content_hash_ = order.manifest.content_hash;
  total_bytes_ = order.manifest.total_bytes;
  bucket_bytes_ = order.manifest.bucket_bytes;
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<Communicator>> BroadcastReceiver::Join(const BroadcastOrder& order,
                                                                      absl::Time deadline) {
  FRESHET_ASSIGN_OR_RETURN(const std::shared_ptr<CommunicatorBackend> backend,
                           Backend(order.backend));
  GroupPlace place;
  std::shared_ptr<Communicator> former;  // closed without the lock
  {
    MutexLock lock(mu_);
    const bool joined = communicator_ != nullptr && group_ == order.group;
    if (order.rendezvous.empty() && !joined) {
      return StatusOf(absl::StatusCode::kUnavailable, "this engine does not belong to the group");
    }
    if (joined) return communicator_;
    former = std::move(communicator_);
    communicator_ = nullptr;
    place.stop = connecting_.get_token();
  }
  former = nullptr;
  place.rank = order.rank;
  place.size = order.size;
  place.rendezvous = order.rendezvous;
  place.timeout = std::min({order.silence_timeout, kMaxConnect, deadline - clock_.Now()});
  if (place.timeout <= absl::ZeroDuration()) {
    return absl::DeadlineExceededError("no time left to connect to the group");
  }
  FRESHET_ASSIGN_OR_RETURN(std::unique_ptr<Communicator> connected, backend->Connect(place));
  MutexLock lock(mu_);
  if (connecting_.stop_requested()) return absl::AbortedError(kSuperseded);
  group_ = order.group;
  communicator_ = std::move(connected);
  return communicator_;
}

absl::Status BroadcastReceiver::Verify(const WeightManifest& manifest, int64_t first,
                                       int64_t size) {
  const absl::Time start = clock_.Now();
  for (int64_t at = first; at < first + size; at += manifest.bucket_bytes) {
    const int64_t length = std::min(manifest.bucket_bytes, first + size - at);
    FRESHET_RETURN_IF_ERROR(
        VerifyBucket(manifest, at / manifest.bucket_bytes,
                     std::span(buffer_->data.get() + at, static_cast<size_t>(length))));
  }
  verify_time_ += clock_.Now() - start;
  MutexLock lock(mu_);
  verified_ = first + size;
  return absl::OkStatus();
}

// Each piece is verified while the next one arrives. After damage this rank goes on taking part, so
// that the others get theirs.
absl::Status BroadcastReceiver::TakePieces(const BroadcastOrder& order, Communicator& communicator,
                                           absl::Time deadline) {
  absl::Status damaged;
  std::jthread verifying;
  const int64_t total = order.manifest.total_bytes;
  for (int64_t at = order.first; at < total; at += order.piece_bytes) {
    const int64_t size = std::min(order.piece_bytes, total - at);
    const absl::Duration timeout =
        std::min(StepTime(order.silence_timeout, size), deadline - clock_.Now());
    FRESHET_RETURN_IF_ERROR(communicator.Broadcast(
        std::span(buffer_->data.get() + at, static_cast<size_t>(size)), 0, timeout));
    if (verifying.joinable()) verifying.join();
    if (!damaged.ok()) continue;
    verifying = std::jthread(
        [this, &order, &damaged, at, size] { damaged = Verify(order.manifest, at, size); });
  }
  if (verifying.joinable()) verifying.join();
  return damaged;
}

absl::Status BroadcastReceiver::Take(const BroadcastOrder& order, absl::Time deadline) {
  FRESHET_RETURN_IF_ERROR(Reserve(order));
  verify_time_ = absl::ZeroDuration();
  FRESHET_ASSIGN_OR_RETURN(const std::shared_ptr<Communicator> communicator, Join(order, deadline));
  return TakePieces(order, *communicator, deadline);
}

absl::StatusOr<BroadcastReceiver::Reply> BroadcastReceiver::Receive(
    const BroadcastOrder& order, absl::Time deadline, const std::function<bool()>& cancelled) {
  FRESHET_RETURN_IF_ERROR(CheckOrder(order));
  FRESHET_RETURN_IF_ERROR(subscriber_->Admit(order.manifest).status());
  FRESHET_ASSIGN_OR_RETURN(const int64_t number, Begin(order, deadline, cancelled));
  const absl::Cleanup ended = [this] { End(); };
  const absl::Status taken = Take(order, deadline);
  if (!taken.ok()) {
    FRESHET_LOG(Warning) << "event=broadcast_failed version=" << order.manifest.policy.version
                         << " rank=" << order.rank << " error=" << LogQuoted(Message(taken));
    return taken;
  }
  if (observer_ != nullptr) observer_->OnPhase(WeightPhase::kVerify, verify_time_);
  {
    MutexLock lock(mu_);
    if (number != newest_) return absl::AbortedError(kSuperseded);
    content_hash_.clear();
    verified_ = 0;
  }
  FRESHET_RETURN_IF_ERROR(
      subscriber_->PrepareVerified(order.manifest, Freeze(std::exchange(buffer_, nullptr))));
  return Reply{true};
}

std::optional<BroadcastReceiver::Running> BroadcastReceiver::RunningLocked() {
  if (!receiving_) return std::nullopt;
  return Running{connecting_, communicator_};
}

void BroadcastReceiver::Running::Abort(const std::string& reason) {
  connecting.request_stop();
  if (communicator != nullptr) communicator->Abort(reason);
}

void BroadcastReceiver::Close(const std::string& reason) {
  std::optional<Running> running;
  {
    MutexLock lock(mu_);
    closed_ = reason;
    running = RunningLocked();
    changed_.NotifyAll();
  }
  if (running.has_value()) running->Abort(reason);
}

}  // namespace freshet
