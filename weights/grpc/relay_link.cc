#include "weights/grpc/relay_link.h"

#include <grpcpp/generic/generic_stub.h>

#include "services/runtime/channel.h"
#include "services/runtime/status.h"
#include "weights/grpc/chunk_codec.h"

namespace freshet {
namespace {

constexpr char kPrepareMethod[] = "/freshet.weights.v1.WeightService/Prepare";

}  // namespace

std::shared_ptr<RelayLink> RelayLink::Open(const std::shared_ptr<grpc::Channel>& channel,
                                           grpc::ByteBuffer header, absl::Duration timeout,
                                           std::shared_ptr<EventCount> events) {
  std::shared_ptr<RelayLink> link(new RelayLink(channel, std::move(events)));
  link->self_ = link;
  runtime::SetDeadline(link->context_, timeout);
  grpc::GenericStub stub(channel);
  stub.PrepareBidiStreamingCall(&link->context_, kPrepareMethod, {}, link.get());
  // The hold keeps gRPC from ending the call before Close(), because writes start outside
  // callbacks.
  link->AddHold();
  {
    MutexLock lock(link->mu_);
    link->writing_ = true;
  }
  link->outgoing_ = std::move(header);
  link->StartRead(&link->incoming_);
  link->StartWrite(&link->outgoing_);
  link->StartCall();
  return link;
}

RelayLink::News RelayLink::Listen() {
  News news;
  bool release = false;
  {
    MutexLock lock(mu_);
    news = std::exchange(news_, {});
    news.writable = !writing_ && !reads_ended_;
    news_.done = news.done;
    news_.status = news.status;
    news_.base = news.base;
    // No more writes: gRPC may end the call and deliver its status.
    release = reads_ended_ && !writing_;
  }
  if (release) ReleaseHold();
  return news;
}

void RelayLink::Write(grpc::ByteBuffer chunk) {
  {
    MutexLock lock(mu_);
    writing_ = true;
  }
  outgoing_ = std::move(chunk);
  StartWrite(&outgoing_);
}

void RelayLink::CloseWrites() { StartWritesDone(); }

void RelayLink::Close() {
  context_.TryCancel();  // no effect if the call has ended
  ReleaseHold();
}

void RelayLink::ReleaseHold() {
  if (std::exchange(held_, false)) RemoveHold();
}

void RelayLink::OnReadDone(bool ok) {
  if (ok) {
    const auto reply = DecodeMessage<weights::v1::PrepareReply>(std::move(incoming_));
    incoming_.Clear();
    {
      MutexLock lock(mu_);
      news_.heard = true;
      if (!news_.base.has_value()) news_.base = reply.ok() ? reply->base() : "";
      if (reply.ok()) {
        news_.results.insert(news_.results.end(), reply->members().begin(), reply->members().end());
      }
    }
    StartRead(&incoming_);
  } else {
    MutexLock lock(mu_);
    reads_ended_ = true;
  }
  events_->Notify();
}

void RelayLink::OnWriteDone(bool ok) {
  {
    MutexLock lock(mu_);
    writing_ = false;
    if (ok) news_.heard = true;
  }
  events_->Notify();
}

void RelayLink::OnDone(const grpc::Status& status) {
  {
    MutexLock lock(mu_);
    news_.done = true;
    news_.status = runtime::GrpcToStatus(status);
  }
  events_->Notify();
  self_.reset();  // may destroy this object
}

}  // namespace freshet
