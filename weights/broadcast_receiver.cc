#include "weights/broadcast_receiver.h"

#include <algorithm>
#include <set>
#include <span>
#include <system_error>
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
// The largest trainer.ranks. Each group takes two threads, and connections to its other members.
constexpr size_t kMaxGroups = 64;
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
  Communicators former;
  {
    MutexLock lock(mu_);
    former = StopLocked();
  }
  AbortAll(former, kSuperseded);
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
    return InvalidArgument("groups: there are ", order.groups.size(), "; there must be 1 to ",
                           kMaxGroups);
  }
  std::vector<ByteRange> ranges;
  std::set<std::string> ids;
  for (size_t i = 0; i < order.groups.size(); ++i) {
    const BroadcastOrder::Group& group = order.groups[i];
    if (group.size < 2 || group.size > kMaxRanks || group.rank < 1 || group.rank >= group.size) {
      return InvalidArgument("groups[", i, "].rank is ", group.rank, " of ", group.size,
                             "; it must be from 1 to size - 1, and size at most ", kMaxRanks);
    }
    if (group.id.empty() || group.id.size() > kMaxIdBytes ||
        group.rendezvous.size() > kMaxIdBytes) {
      return InvalidArgument("groups[", i, "].id must have 1 to ", kMaxIdBytes,
                             " bytes, and rendezvous at most as many");
    }
    if (!ids.insert(group.id).second) {
      return InvalidArgument("groups[", i, "].id is that of another group");
    }
    if (ranges.size() + group.ranges.size() > kMaxRanges) {
      return InvalidArgument("groups[", i, "].ranges: all groups may have ", kMaxRanges);
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
  if (first < 0 || first > total || (first % bucket != 0 && first != total)) {
    return InvalidArgument("groups.ranges begin at byte ", first,
                           "; it must be a multiple of bucket_bytes ", bucket, ", or total_bytes ",
                           total);
  }
  int64_t next = first;
  for (const ByteRange& range : ranges) {
    if (range.first != next || range.size <= 0 || range.size > total - next) {
      return InvalidArgument("groups.ranges: ", range.size, " bytes at byte ", range.first,
                             "; there must be 1 to ", total - next, " bytes at byte ", next);
    }
    next += range.size;
  }
  if (next != total) {
    return InvalidArgument("groups.ranges end at byte ", next, ", not at total_bytes ", total);
  }
  return first;
}

absl::StatusOr<int64_t> BroadcastReceiver::Begin(const WeightManifest& manifest, int64_t first,
                                                 absl::Time deadline,
                                                 const std::function<bool()>& cancelled) {
  if (cancelled()) return absl::AbortedError("the call was cancelled");
  int64_t number = 0;
  Communicators former;
  {
    MutexLock lock(mu_);
    number = ++newest_;
    former = StopLocked();
    changed_.NotifyAll();
  }
  AbortAll(former, kSuperseded);
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
  for (const ByteRange& range : group.ranges) {
    place.staged_bytes = std::max(place.staged_bytes, std::min(range.size, order.piece_bytes));
  }
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

absl::Status BroadcastReceiver::ForGroups(size_t groups,
                                          absl::FunctionRef<absl::Status(size_t group)> part) {
  std::vector<absl::Status> ended(groups);
  const auto run = [&](size_t i) {
    try {
      ended[i] = part(i);
    } catch (const std::system_error& error) {
      ended[i] = ResourceExhausted("no thread to verify bytes: ", error.what());
    }
    if (!ended[i].ok() && !absl::IsDataLoss(ended[i])) AbortGroups(Message(ended[i]));
  };
  {
    std::vector<std::jthread> others;
    try {
      for (size_t i = 1; i < groups; ++i) others.emplace_back(run, i);
    } catch (const std::system_error& error) {
      ended[0] = ResourceExhausted("no thread for a group: ", error.what());
      AbortGroups(Message(ended[0]));
    }
    if (ended[0].ok()) run(0);
  }
  // A group that fails ends the others with ABORTED. If one fails and another brings damaged bytes,
  // the version is to be sent again.
  const auto weight = [](const absl::Status& status) {
    return status.ok() ? 0 : absl::IsAborted(status) ? 1 : absl::IsDataLoss(status) ? 2 : 3;
  };
  return *std::ranges::max_element(ended, {}, weight);
}

void BroadcastReceiver::AbortGroups(const std::string& reason) {
  Communicators running;
  {
    MutexLock lock(mu_);
    running = StopLocked();
  }
  AbortAll(running, reason);
}

// All groups are joined before the first one brings bytes: what NCCL does to connect may wait for
// the GPU's work.
absl::Status BroadcastReceiver::Take(const BroadcastOrder& order, int64_t first,
                                     absl::Time deadline) {
  FRESHET_RETURN_IF_ERROR(Reserve(order.manifest, first));
  LeaveOthers(order);
  std::vector<std::shared_ptr<Communicator>> joined(order.groups.size());
  FRESHET_RETURN_IF_ERROR(ForGroups(joined.size(), [&](size_t group) -> absl::Status {
    FRESHET_ASSIGN_OR_RETURN(joined[group], Join(order, order.groups[group], deadline));
    return absl::OkStatus();
  }));
  return ForGroups(joined.size(), [&](size_t group) {
    return TakePieces(order, order.groups[group], *joined[group], deadline);
  });
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

BroadcastReceiver::Communicators BroadcastReceiver::StopLocked() {
  if (!receiving_) return {};
  connecting_.request_stop();
  return communicators_;
}

void BroadcastReceiver::AbortAll(const Communicators& running, const std::string& reason) {
  for (const auto& [id, communicator] : running) communicator->Abort(reason);
}

void BroadcastReceiver::Close(const std::string& reason) {
  Communicators running;
  {
    MutexLock lock(mu_);
    closed_ = reason;
    running = StopLocked();
    changed_.NotifyAll();
  }
  AbortAll(running, reason);
}

}  // namespace freshet
