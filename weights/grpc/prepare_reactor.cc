#include "weights/grpc/prepare_reactor.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "base/status_macros.h"
#include "base/str_cat.h"
#include "services/runtime/unary.h"
#include "weights/grpc/chunk_codec.h"
#include "weights/grpc/delta_chunk.h"
#include "weights/grpc/manifest_codec.h"
#include "weights/grpc/weight_service.h"
#include "weights/relay_plan.h"

namespace freshet {
namespace {

constexpr size_t kMaxAddressBytes = 512;
// Results of a whole chain plus some keep-alive replies.
constexpr size_t kMaxReplies = kMaxRelayed + 16;

absl::StatusOr<std::vector<WeightMember>> ReadChain(const weights::v1::PrepareHeader& header) {
  if (header.chain_size() > kMaxRelayed) {
    return InvalidArgument("chain: ", header.chain_size(), " members, at most ", kMaxRelayed);
  }
  std::vector<WeightMember> chain;
  for (const weights::v1::Member& member : header.chain()) {
    if (member.worker().empty() || member.worker().size() > kMaxAddressBytes ||
        member.address().empty() || member.address().size() > kMaxAddressBytes) {
      return InvalidArgument("chain: a worker or an address does not have 1 to ", kMaxAddressBytes,
                             " bytes");
    }
    chain.push_back({member.worker(), member.address()});
  }
  return chain;
}

}  // namespace

PrepareReactor::PrepareReactor(GrpcWeightService& host, grpc::CallbackServerContext* context,
                               absl::Status refused)
    : BidiReactor(kMaxReplies), host_(host), context_(context), refused_(std::move(refused)) {}

void PrepareReactor::OnOpen() {
  if (!refused_.ok()) Finish(refused_);
}

PrepareReactor::Reading PrepareReactor::OnMessage(const grpc::ByteBuffer& message) {
  if (!refused_.ok()) return Reading::kPause;
  if (subscriber_ == nullptr) {
    const absl::Status status = OnHeader(message);
    if (!status.ok()) Finish(status);
  } else {
    const absl::Status status = OnChunk(message);
    if (!status.ok()) {
      SetOwnResult(status);
    } else {
      CompleteWhenWhole();
    }
  }
  MutexLock lock(mu_);
  return own_known_ || reception_ == nullptr ? Reading::kPause : Reading::kContinue;
}

absl::Status PrepareReactor::OnHeader(const grpc::ByteBuffer& message) {
  FRESHET_ASSIGN_OR_RETURN(const auto request, DecodeMessage<weights::v1::PrepareRequest>(message));
  if (!request.has_header()) return InvalidArgument("the first message is not a header");
  const weights::v1::PrepareHeader& header = request.header();
  FRESHET_ASSIGN_OR_RETURN(const WeightEndpoint endpoint, host_.Find(header.job()));
  if (endpoint.subscriber == nullptr) {
    return FailedPrecondition("this member takes no weights of job ", header.job());
  }
  const absl::Duration left = runtime::DeadlineOf(*context_) - absl::Now();
  if (left > host_.options_.max_call) {
    return InvalidArgument("the call needs a deadline of at most ",
                           absl::FormatDuration(host_.options_.max_call));
  }
  RelayJob relay;
  FRESHET_ASSIGN_OR_RETURN(relay.chain, ReadChain(header));
  relay.job = header.job();
  relay.manifest = ManifestFromProto(header.manifest());
  relay.deadline = host_.clock_.Now() + left;
  relay.silence_timeout =
      SilenceFromProto(header.has_silence_timeout() ? &header.silence_timeout() : nullptr, left);
  FRESHET_RETURN_IF_ERROR(CheckManifest(relay.manifest, endpoint.limits));
  subscriber_ = endpoint.subscriber;
  const auto admission = subscriber_->Admit(relay.manifest);
  if (!admission.ok() || *admission == WeightSubscriber::Admission::kHeld) {
    SetOwnResult(admission.status());
    return absl::OkStatus();
  }
  auto reception = WeightReception::Create(relay.manifest, endpoint.limits, host_.pool_,
                                           [events = events_] { events->Notify(); });
  if (!reception.ok()) {
    SetOwnResult(reception.status());
    return absl::OkStatus();
  }
  relay.bytes = (*reception)->bytes();
  {
    MutexLock lock(mu_);
    reception_ = *std::move(reception);
  }
  host_.TakeOver(relay.job, shared_from_this());
  silence_timeout_ = relay.silence_timeout;
  SendAlive(header.ask_base() ? KeepBase(relay.manifest) : "");
  if (!relay.chain.empty()) StartRelay(std::move(relay));
  CompleteWhenWhole();
  return absl::OkStatus();
}

absl::Status PrepareReactor::OnChunk(const grpc::ByteBuffer& message) {
  std::shared_ptr<WeightReception> reception;
  {
    MutexLock lock(mu_);
    reception = reception_;
  }
  const absl::Status status = base_ != nullptr && IsDeltaChunk(message)
                                  ? AppendDeltaChunk(message, *base_, *delta_, *reception)
                                  : AppendChunk(message, *reception);
  if (!status.ok()) {
    reception->Abort(status);
  } else if (host_.clock_.Now() - alive_at_ >= silence_timeout_ / 3) {
    SendAlive();
  }
  return status;
}

std::string PrepareReactor::KeepBase(const WeightManifest& manifest) {
  const std::optional<CommittedWeights> active = subscriber_->Committed();
  if (!active.has_value() || active->snapshot.manifest.total_bytes != manifest.total_bytes) {
    return "";
  }
  base_ = active->snapshot.bytes;
  delta_ = std::make_unique<DeltaCodec>(manifest);
  return active->snapshot.manifest.content_hash;
}

void PrepareReactor::SendAlive(const std::string& base) {
  alive_at_ = host_.clock_.Now();
  weights::v1::PrepareReply reply;
  reply.set_base(base);
  Send(EncodeMessage(reply));
}

void PrepareReactor::CompleteWhenWhole() {
  std::shared_ptr<WeightReception> reception;
  {
    MutexLock lock(mu_);
    reception = reception_;
  }
  const absl::StatusOr<int64_t> verified = reception->Verified();
  if (!verified.ok() || *verified < reception->manifest().total_bytes) return;
  base_ = nullptr;  // relaying may take longer
  delta_ = nullptr;
  if (host_.observer_ != nullptr) {
    host_.observer_->OnPhase(WeightPhase::kVerify, reception->verify_time());
  }
  SetOwnResult(subscriber_->PrepareVerified(reception->manifest(), reception->bytes()));
}

void PrepareReactor::StartRelay(RelayJob job) {
  {
    MutexLock lock(mu_);
    relaying_ = true;
  }
  // The host outlives its threads.
  if (host_.relays_.TrySubmit(
          [self = shared_from_this(), job = std::move(job)] { self->RunRelay(job); })) {
    return;
  }
  // Without a thread, the caller serves the rest of the chain.
  MutexLock lock(mu_);
  relaying_ = false;
}

void PrepareReactor::RunRelay(const RelayJob& job) {
  RelayHooks hooks;
  hooks.available = [this]() -> absl::StatusOr<int64_t> {
    std::shared_ptr<WeightReception> reception;
    {
      MutexLock lock(mu_);
      if (ended_) return absl::CancelledError("the call has ended");
      reception = reception_;
    }
    return reception->Verified();
  };
  hooks.on_result = [this](const std::string& worker, const absl::Status& status) {
    SendResult(worker, status);
  };
  hooks.on_alive = [this] { Send(EncodeMessage(weights::v1::PrepareReply())); };
  if (host_.observer_ != nullptr) {
    hooks.on_bytes = [this](int64_t bytes) { host_.observer_->OnBytes(bytes); };
  }
  RelaySender(job, std::move(hooks), host_.channels_, host_.clock_, events_).Run();
  {
    MutexLock lock(mu_);
    relaying_ = false;
  }
  FinishWhenDone();
}

void PrepareReactor::SetOwnResult(const absl::Status& status) {
  {
    MutexLock lock(mu_);
    if (std::exchange(own_known_, true)) return;
  }
  SendResult("", status);
  {
    MutexLock lock(mu_);
    own_sent_ = true;
  }
  FinishWhenDone();
}

void PrepareReactor::SendResult(const std::string& worker, const absl::Status& status) {
  weights::v1::PrepareReply reply;
  ResultToProto(worker, status, *reply.add_members());
  Send(EncodeMessage(reply));
}

void PrepareReactor::FinishWhenDone() {
  {
    MutexLock lock(mu_);
    if (!own_sent_ || relaying_) return;
  }
  Finish(absl::OkStatus());
}

void PrepareReactor::OnClientDone() {
  std::shared_ptr<WeightReception> reception;
  {
    MutexLock lock(mu_);
    if (own_known_) return;
    reception = reception_;
  }
  if (reception == nullptr) {
    Finish(InvalidArgument("the stream ended before its header"));
    return;
  }
  const absl::Status torn = DataLoss("the stream ended before the version was complete");
  reception->Abort(torn);
  SetOwnResult(torn);
}

void PrepareReactor::Abort(const std::string& reason) {
  std::shared_ptr<WeightReception> reception;
  {
    MutexLock lock(mu_);
    own_known_ = true;
    ended_ = true;
    reception = reception_;
  }
  const absl::Status aborted = absl::AbortedError(reason);
  if (reception != nullptr) reception->Abort(aborted);
  events_->Notify();
  Finish(aborted);
}

void PrepareReactor::OnEnd() {
  std::shared_ptr<WeightReception> reception;
  {
    MutexLock lock(mu_);
    ended_ = true;
    reception = reception_;
  }
  if (reception != nullptr) reception->Abort(absl::CancelledError("the call has ended"));
  events_->Notify();
  host_.Ended();
}

}  // namespace freshet
