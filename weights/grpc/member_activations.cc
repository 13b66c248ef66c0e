#include "weights/grpc/member_activations.h"

#include <algorithm>
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
  const MutexLock lock(mu_);
  if (closed_ || std::ranges::find(started_, member.worker) != started_.end()) return;
  started_.push_back(member.worker);
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

std::map<std::string, MemberAnswer> MemberActivations::Await(
    const std::function<bool(const std::string&)>& departed) {
  std::vector<std::string> started;
  {
    const MutexLock lock(mu_);
    closed_ = true;
    started = started_;
  }
  const std::vector<MemberAnswer> answers = calls_.Await(departed);
  std::map<std::string, MemberAnswer> by_worker;
  for (size_t i = 0; i < started.size(); ++i) by_worker[started[i]] = answers[i];
  return by_worker;
}

}  // namespace freshet
