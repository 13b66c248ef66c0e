#include "weights/grpc/relay_sender.h"

#include <algorithm>
#include <span>
#include <utility>

#include "base/proto_time.h"
#include "base/status_macros.h"
#include "base/str_cat.h"
#include "weights/delta_codec.h"
#include "weights/grpc/chunk_codec.h"
#include "weights/grpc/delta_chunk.h"
#include "weights/grpc/manifest_codec.h"

namespace freshet {
namespace {

// The receiver sees the bytes of a chunk when it has all of it, so larger ones than a bucket would
// delay relaying. Smaller ones than this cost more in calls.
constexpr int64_t kMinChunkBytes = 16 << 10;
// Smaller differences take more of the processor's time, and only the first link of a chain has
// them.
constexpr int64_t kMinDeltaBytes = 512 << 10;

grpc::ByteBuffer EncodeHeader(const RelayJob& job, const std::vector<WeightMember>& chain,
                              bool ask_base) {
  weights::v1::PrepareRequest request;
  weights::v1::PrepareHeader& header = *request.mutable_header();
  header.set_job(job.job);
  ManifestToProto(job.manifest, *header.mutable_manifest());
  for (size_t i = 1; i < chain.size(); ++i) {
    weights::v1::Member& member = *header.add_chain();
    member.set_worker(chain[i].worker);
    member.set_address(chain[i].address);
  }
  *header.mutable_silence_timeout() = ToDuration(job.silence_timeout);
  header.set_ask_base(ask_base);
  return EncodeMessage(request);
}

}  // namespace

// One call to the first member of a chain.
struct RelaySender::Attempt {
  std::shared_ptr<RelayLink> link;
  std::string worker;
  int64_t sent = 0;
  bool asking = false;                          // waits for the member's base before sending
  std::unique_ptr<DeltaCodec> delta = nullptr;  // null: it gets no differences
  bool closed = false;
  absl::Time heard;         // last sign of life, or last time this side had nothing to send
  absl::Time looked;        // last time the member was checked
  absl::Duration waited;    // for the member's own result
  absl::Duration patience;  // maximum of `waited`
};

RelaySender::RelaySender(RelayJob job, RelayHooks hooks, ChannelSource channels, const Clock& clock,
                         std::shared_ptr<EventCount> events)
    : job_(std::move(job)),
      hooks_(std::move(hooks)),
      channels_(std::move(channels)),
      clock_(clock),
      events_(std::move(events)),
      delta_(job_.base.has_value()),
      alive_at_(clock.Now()) {
  for (const WeightMember& member : job_.chain) open_.insert(member.worker);
}

void RelaySender::Run() {
  std::vector<WeightMember> chain = job_.chain;
  while (!chain.empty() && clock_.Now() < job_.deadline && hooks_.available().ok()) {
    const std::string first = chain.front().worker;
    const bool had_delta = delta_;
    absl::Status status = Serve(chain);
    const bool ours = !hooks_.available().ok() || clock_.Now() >= job_.deadline;
    // The member has reported corrupt differences: it is served again, with whole bytes.
    const bool corrupt_delta = had_delta && !delta_;
    // An earlier call of a member that has failed arrived after this one and replaced it.
    const bool replaced = absl::IsAborted(status) && replaced_.insert(first).second;
    const bool again = corrupt_delta || replaced;
    if (IsOpen(first) && !ours && !again) {
      if (status.ok()) status = absl::UnavailableError("ended the call without a result");
      Record(first, status);
    }
    if (!again) chain.erase(chain.begin());
    std::erase_if(chain, [this](const WeightMember& member) { return !IsOpen(member.worker); });
  }
}

void RelaySender::Record(const std::string& worker, const absl::Status& status) {
  if (open_.erase(worker) != 0) hooks_.on_result(worker, status);
}

absl::Status RelaySender::Serve(const std::vector<WeightMember>& chain) {
  const std::shared_ptr<grpc::Channel> channel = channels_(chain.front().address);
  if (channel == nullptr) {
    return absl::UnavailableError(StrCat("no channel to ", chain.front().address));
  }
  Attempt attempt;
  attempt.worker = chain.front().worker;
  attempt.heard = attempt.looked = clock_.Now();
  const absl::Duration left = job_.deadline - attempt.heard;
  attempt.patience = chain.size() > 1 ? left / 2 : left;
  attempt.asking = delta_;
  attempt.link = RelayLink::Open(channel, EncodeHeader(job_, chain, delta_), left, events_);
  absl::Status status;
  while (true) {
    const uint64_t seen = events_->count();
    const RelayLink::News news = attempt.link->Listen();
    status = Take(news.results, attempt);
    if (!status.ok()) break;
    if (news.heard) attempt.heard = clock_.Now();
    status = news.status;
    if (news.done) break;
    if (attempt.asking && news.base.has_value()) {
      attempt.asking = false;
      if (*news.base == job_.base->manifest.content_hash) {
        attempt.delta = std::make_unique<DeltaCodec>(job_.manifest);
      }
    }
    const absl::StatusOr<bool> own_wait = Feed(attempt, news.writable);
    status = own_wait.ok() ? CheckPatience(attempt, *own_wait) : own_wait.status();
    if (!status.ok()) break;
    const absl::Time now = clock_.Now();
    if (hooks_.on_alive && now - alive_at_ >= job_.silence_timeout / 3) {
      alive_at_ = now;
      hooks_.on_alive();
    }
    events_->Await(seen, std::min(job_.silence_timeout / 3, job_.deadline - now));
  }
  attempt.link->Close();
  return status;
}

absl::Status RelaySender::Take(const std::vector<weights::v1::MemberResult>& results,
                               const Attempt& attempt) {
  for (const weights::v1::MemberResult& result : results) {
    const std::string& worker = result.worker().empty() ? attempt.worker : result.worker();
    const absl::Status status = ResultFromProto(result);
    if (attempt.delta != nullptr && worker == attempt.worker && absl::IsDataLoss(status)) {
      delta_ = false;
      if (hooks_.on_corrupt_delta) hooks_.on_corrupt_delta(worker, status);
      return status;
    }
    Record(worker, status);
  }
  return absl::OkStatus();
}

absl::StatusOr<bool> RelaySender::Feed(Attempt& attempt, bool writable) {
  FRESHET_ASSIGN_OR_RETURN(const int64_t available, hooks_.available());
  if (!writable || attempt.closed || attempt.asking) return false;
  if (attempt.sent == job_.manifest.total_bytes) {
    attempt.closed = true;
    attempt.link->CloseWrites();
    return false;
  }
  const int64_t chunk =
      std::clamp(job_.manifest.bucket_bytes,
                 attempt.delta != nullptr ? kMinDeltaBytes : kMinChunkBytes, kMaxChunkBytes);
  const int64_t size = std::min(chunk, available - attempt.sent);
  if (size <= 0) return true;
  Write(attempt, size);
  return false;
}

void RelaySender::Write(Attempt& attempt, int64_t size) {
  int64_t sent = size;
  std::optional<std::string> difference;
  if (attempt.delta != nullptr) {
    const auto count = static_cast<size_t>(size);
    difference = attempt.delta->Encode(std::span(job_.bytes->data() + attempt.sent, count),
                                       std::span(job_.base->bytes->data() + attempt.sent, count));
    if (difference.has_value()) sent = static_cast<int64_t>(difference->size());
    if (hooks_.on_delta) hooks_.on_delta(size, sent);
  }
  attempt.link->Write(difference.has_value()
                          ? EncodeDeltaChunk(attempt.sent, size, *std::move(difference))
                          : EncodeChunk(job_.bytes, attempt.sent, size));
  attempt.sent += size;
  if (hooks_.on_bytes) hooks_.on_bytes(sent);
}

absl::Status RelaySender::CheckPatience(Attempt& attempt, bool own_wait) {
  const absl::Time now = clock_.Now();
  const absl::Duration since = now - std::exchange(attempt.looked, now);
  if (own_wait) {
    attempt.heard = now;
  } else if (IsOpen(attempt.worker)) {
    attempt.waited += since;
  }
  if (now >= job_.deadline) return absl::DeadlineExceededError("publication deadline exceeded");
  if (hooks_.departed && hooks_.departed(attempt.worker)) {
    return absl::CancelledError("no longer a member");
  }
  if (now - attempt.heard >= job_.silence_timeout) {
    return absl::DeadlineExceededError(
        StrCat("no sign of life for ", absl::FormatDuration(job_.silence_timeout)));
  }
  if (IsOpen(attempt.worker) && attempt.waited >= attempt.patience) {
    return absl::DeadlineExceededError(StrCat("too slow: ", attempt.sent, " of ",
                                              job_.manifest.total_bytes, " bytes taken in ",
                                              absl::FormatDuration(attempt.waited)));
  }
  return absl::OkStatus();
}

}  // namespace freshet
