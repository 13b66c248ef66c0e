#include "weights/grpc/member_activations.h"

#include <utility>

#include "freshet/weights/v1/weight_service.grpc.pb.h"
#include "weights/grpc/manifest_codec.h"

namespace freshet {

MemberActivations::MemberActivations(std::string job, const CommitReceipt& receipt,
                                     ChannelSource channels, absl::Duration timeout,
                                     std::shared_ptr<EventCount> events)
    : job_(std::move(job)),
      receipt_(receipt),
      calls_(std::move(channels), timeout, std::move(events)) {}

void MemberActivations::Start(const WeightMember& member) {
  {
    const MutexLock lock(mu_);
    if (closed_ || !started_.insert(member.worker).second) return;
  }
  calls_.Start(member, [this](size_t, weights::v1::WeightService::Stub& stub,
                              grpc::ClientContext* context,
                              std::function<void(grpc::Status)> done) {
    const auto request = std::make_shared<weights::v1::ActivateRequest>();
    request->set_job(job_);
    ReceiptToProto(receipt_, *request->mutable_receipt());
    const auto reply = std::make_shared<weights::v1::ActivateReply>();
    stub.async()->Activate(
        context, request.get(), reply.get(),
        [request, reply, done = std::move(done)](grpc::Status status) { done(std::move(status)); });
  });
}

std::vector<MemberAnswer> MemberActivations::Await(
    const std::function<bool(const std::string&)>& departed) {
  {
    const MutexLock lock(mu_);
    closed_ = true;
  }
  return calls_.Await(departed);
}

}  // namespace freshet
