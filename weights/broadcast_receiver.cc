#include "weights/broadcast_receiver.h"

#include <algorithm>
#include <set>
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
constexpr size_t kMaxGroups =
    64;  // with at most 64 threads and connections to each of their members
constexpr size_t kMaxRanges = 65'536;
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
  return KeepsLocked(manifest) && progress_ != nullptr ? progress_->verified_prefix() : 0;
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
  return Reply{true};
}

absl::StatusOr<int64_t> BroadcastReceiver::CheckOrder(const BroadcastOrder& order) const {
  FRESHET_RETURN_IF_ERROR(CheckManifest(order.manifest, limits_));
  if (order.groups.empty() || order.groups.size() > kMaxGroups) {
    return InvalidArgument("groups: ", order.groups.size(), " of them; there must be 1 to ",
                           kMaxGroups);
  }
  std::vector<ByteRange> ranges;
  std::set<std::string> ids;
  for (const BroadcastOrder::Group& group : order.groups) {
    if (group.size < 2 || group.size > kMaxRanks || group.rank < 1 || group.rank >= group.size) {
      return InvalidArgument("group.rank is ", group.rank, " of ", group.size,
                             "; it must be from 1 to size - 1, and size at most ", kMaxRanks);
    }
    if (group.id.empty() || group.id.size() > kMaxIdBytes ||
        group.rendezvous.size() > kMaxIdBytes || !ids.insert(group.id).second) {
      return InvalidArgument("group.id must have 1 to ", kMaxIdBytes,
                             " bytes, another one for each group, and group.rendezvous at most as "
                             "many");
    }
    if (ranges.size() + group.ranges.size() > kMaxRanges) {
      return InvalidArgument("group.ranges: there may be ", kMaxRanges, " in all groups");
    }
    ranges.insert(ranges.end(), group.ranges.begin(), group.ranges.end());
  }
  const int64_t bucket = order.manifest.bucket_bytes;
  // A bucket may itself be larger than the limit of a piece.
  if (order.piece_bytes < bucket || order.piece_bytes > std::max(kMaxPieceBytes, bucket)) {
    return InvalidArgument("piece_bytes is ", order.piece_bytes,
                           "; it must be at least bucket_bytes ", bucket, ", at most ",
                           std::max(kMaxPieceBytes, bucket));
  }
  const int64_t total = order.manifest.total_bytes;
  std::ranges::sort(ranges, {}, &ByteRange::first);
  const int64_t first = ranges.empty() ? total : ranges.front().first;
  int64_t next = first;
  for (const ByteRange& range : ranges) {
    if (range.first != next || range.size <= 0 || range.size > total - next) next = -1;
    if (next < 0) break;
    next += range.size;
  }
  if (next != total || first < 0 || (first % bucket != 0 && first != total)) {
    return InvalidArgument("group.ranges: those of all groups must be the version's ", total,
                           " bytes, or end there and begin at a multiple of bucket_bytes ", bucket);
  }
  return first;
}

absl::StatusOr<int64_t> BroadcastReceiver::Begin(const WeightManifest& manifest, int64_t first,
                                                 absl::Time deadline,
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
  if (first > VerifiedLocked(manifest)) {
    return FailedPrecondition("the broadcast starts at byte ", first, ", but only ",
                              VerifiedLocked(manifest), " bytes of the version are here");
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

absl::Status BroadcastReceiver::Reserve(const WeightManifest& manifest, int64_t first) {
  {
    MutexLock lock(mu_);
    verify_time_ = absl::ZeroDuration();
    if (buffer_ != nullptr && KeepsLocked(manifest)) {
      progress_->Restart(first);  // what follows is written again
      return absl::OkStatus();
    }
    content_hash_.clear();
  }
  buffer_ = nullptr;
  FRESHET_ASSIGN_OR_RETURN(buffer_, pool_.Get(static_cast<size_t>(manifest.total_bytes)));
  MutexLock lock(mu_);
  progress_ = std::make_unique<BucketProgress>(manifest.total_bytes, manifest.bucket_bytes);
  content_hash_ = manifest.content_hash;
  total_bytes_ = manifest.total_bytes;
  bucket_bytes_ = manifest.bucket_bytes;
  return absl::OkStatus();
}

void BroadcastReceiver::LeaveOthers(const BroadcastOrder& order) {
  Communicators left;  // closed without the lock
  MutexLock lock(mu_);
  left.swap(communicators_);
  for (const BroadcastOrder::Group& group : order.groups) {
    if (auto kept = left.extract(group.id)) communicators_.insert(std::move(kept));
  }
}

absl::StatusOr<std::shared_ptr<Communicator>> BroadcastReceiver::Join(
    const BroadcastOrder& order, const BroadcastOrder::Group& group, absl::Time deadline) {
  FRESHET_ASSIGN_OR_RETURN(const std::shared_ptr<CommunicatorBackend> backend,
                           Backend(order.backend));
  GroupPlace place;
  {
    MutexLock lock(mu_);
    const auto joined = communicators_.find(group.id);
    if (joined != communicators_.end()) return joined->second;
    place.stop = connecting_.get_token();
  }
  if (group.rendezvous.empty()) {
    return StatusOf(absl::StatusCode::kUnavailable, "this engine does not belong to the group");
  }
  place.rank = group.rank;
  place.size = group.size;
  place.rendezvous = group.rendezvous;
  place.timeout = std::min({order.silence_timeout, kMaxConnect, deadline - clock_.Now()});
  if (place.timeout <= absl::ZeroDuration()) {
    return absl::DeadlineExceededError("no time left to connect to the group");
  }
  FRESHET_ASSIGN_OR_RETURN(std::shared_ptr<Communicator> connected, backend->Connect(place));
  MutexLock lock(mu_);
  if (connecting_.stop_requested()) return absl::AbortedError(kSuperseded);
  communicators_[group.id] = connected;
  return connected;
}

absl::Status BroadcastReceiver::Verify(const WeightManifest& manifest,
                                       const std::vector<int64_t>& buckets) {
  const absl::Time start = clock_.Now();
  for (const int64_t bucket : buckets) {
    const int64_t at = bucket * manifest.bucket_bytes;
    const int64_t size = std::min(manifest.bucket_bytes, manifest.total_bytes - at);
    FRESHET_RETURN_IF_ERROR(VerifyBucket(
        manifest, bucket, std::span(buffer_->data.get() + at, static_cast<size_t>(size))));
    progress_->Verified(bucket);
  }
  MutexLock lock(mu_);
  verify_time_ += clock_.Now() - start;
  return absl::OkStatus();
}

// The buckets that are complete with a piece are verified while the next one arrives. After damage
// this rank goes on taking part, so that the others get theirs.
absl::Status BroadcastReceiver::TakePieces(const BroadcastOrder& order,
                                           const BroadcastOrder::Group& group,
                                           Communicator& communicator, absl::Time deadline) {
  absl::Status damaged;
  std::jthread verifying;
  for (const ByteRange& range : group.ranges) {
    const int64_t end = range.first + range.size;
    for (int64_t at = range.first; at < end; at += order.piece_bytes) {
      const int64_t size = std::min(order.piece_bytes, end - at);
      const absl::Duration timeout =
          std::min(StepTime(order.silence_timeout, size), deadline - clock_.Now());
      FRESHET_RETURN_IF_ERROR(communicator.Broadcast(
          std::span(buffer_->data.get() + at, static_cast<size_t>(size)), 0, timeout));
      if (verifying.joinable()) verifying.join();
      std::vector<int64_t> complete = progress_->Arrived({at, size});
      if (!damaged.ok() || complete.empty()) continue;
      verifying = std::jthread([this, &order, &damaged, complete = std::move(complete)] {
        damaged = Verify(order.manifest, complete);
      });
    }
  }
  if (verifying.joinable()) verifying.join();
  return damaged;
}

absl::Status BroadcastReceiver::TakePart(const BroadcastOrder& order,
                                         const BroadcastOrder::Group& group, absl::Time deadline) {
  absl::StatusOr<std::shared_ptr<Communicator>> communicator = Join(order, group, deadline);
  absl::Status taken = communicator.status();
  if (taken.ok()) taken = TakePieces(order, group, **communicator, deadline);
  if (taken.ok() || absl::IsDataLoss(taken)) return taken;
  // One fails with the other.
  std::optional<Running> running;
  {
    MutexLock lock(mu_);
    running = RunningLocked();
  }
  if (running.has_value()) running->Abort(Message(taken));
  return taken;
}

absl::Status BroadcastReceiver::Take(const BroadcastOrder& order, int64_t first,
                                     absl::Time deadline) {
  FRESHET_RETURN_IF_ERROR(Reserve(order.manifest, first));
  LeaveOthers(order);
  std::vector<absl::Status> taken(order.groups.size());
  {
    std::vector<std::jthread> others;
    for (size_t i = 1; i < order.groups.size(); ++i) {
      others.emplace_back([&, i] { taken[i] = TakePart(order, order.groups[i], deadline); });
    }
    taken[0] = TakePart(order, order.groups[0], deadline);
  }
  // A group that has failed ends the others with ABORTED, so its error is the reason.
  absl::Status failed;
  for (const absl::Status& status : taken) {
    if (failed.ok() || absl::IsAborted(failed)) failed = status.ok() ? failed : status;
  }
  return failed;
}

absl::StatusOr<BroadcastReceiver::Reply> BroadcastReceiver::Receive(
    const BroadcastOrder& order, absl::Time deadline, const std::function<bool()>& cancelled) {
  FRESHET_ASSIGN_OR_RETURN(const int64_t first, CheckOrder(order));
  FRESHET_RETURN_IF_ERROR(subscriber_->Admit(order.manifest).status());
  FRESHET_ASSIGN_OR_RETURN(const int64_t number, Begin(order.manifest, first, deadline, cancelled));
  const absl::Cleanup ended = [this] { End(); };
  const absl::Status taken = Take(order, first, deadline);
  if (!taken.ok()) {
    FRESHET_LOG(Warning) << "event=broadcast_failed version=" << order.manifest.policy.version
                         << " rank=" << order.groups[0].rank
                         << " error=" << LogQuoted(Message(taken));
    return taken;
  }
  absl::Duration verify_time;
  {
    MutexLock lock(mu_);
    verify_time = verify_time_;
    if (number != newest_) return absl::AbortedError(kSuperseded);
    content_hash_.clear();
  }
  if (observer_ != nullptr) observer_->OnPhase(WeightPhase::kVerify, verify_time);
  FRESHET_RETURN_IF_ERROR(
      subscriber_->PrepareVerified(order.manifest, Freeze(std::exchange(buffer_, nullptr))));
  return Reply{true};
}

std::optional<BroadcastReceiver::Running> BroadcastReceiver::RunningLocked() {
  if (!receiving_) return std::nullopt;
  return Running{connecting_, communicators_};
}

void BroadcastReceiver::Running::Abort(const std::string& reason) {
  connecting.request_stop();
  for (const auto& [id, communicator] : communicators) communicator->Abort(reason);
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
