#include "controller/api/worker_service.h"

#include <memory>
#include <utility>

#include "base/log.h"
#include "base/status_macros.h"
#include "base/str_cat.h"
#include "controller/api/api_errors.h"
#include "services/runtime/authorizer.h"
#include "services/runtime/bidi_reactor.h"
#include "services/runtime/peer_name.h"
#include "services/runtime/unary.h"
#include "services/worker/role_name.h"

namespace freshet {
namespace {

using cluster::v1::Directive;
using cluster::v1::WorkerStatus;

constexpr int kThreads = 8;
constexpr size_t kMaxDirectives = 512;

class HeartbeatReactor final : public runtime::BidiReactor<WorkerStatus, Directive> {
 public:
  explicit HeartbeatReactor(Controller& controller)
      : BidiReactor(kMaxDirectives), controller_(controller) {}

  // The hub's handle to the stream. May outlive the reactor.
  class Stream final : public DirectiveStream {
   public:
    explicit Stream(std::weak_ptr<HeartbeatReactor> reactor) : reactor_(std::move(reactor)) {}
    bool Send(const Directive& directive) override {
      const auto reactor = reactor_.lock();
      return reactor != nullptr &&
             reactor->BidiReactor::Send(directive) == runtime::SendResult::kQueued;
    }
    void Finish(const absl::Status& status) override {
      if (const auto reactor = reactor_.lock()) reactor->BidiReactor::Finish(status);
    }

   private:
    const std::weak_ptr<HeartbeatReactor> reactor_;
  };
  void SetStream(std::shared_ptr<Stream> stream) { stream_ = std::move(stream); }

 private:
  Reading OnMessage(const WorkerStatus& status) override {
    // A stream is bound to the term in which it started.
    if (term_ == nullptr) term_ = controller_.Active();
    if (term_ == nullptr) {
      Finish(NotLeading(controller_.Leader()));
      return Reading::kContinue;
    }
    const absl::Status taken = term_->hub->OnStatus(stream_, status);
    if (!taken.ok()) Finish(Led(taken, "", controller_.Leader()));
    return Reading::kContinue;
  }
  void OnEnd() override {
    if (term_ != nullptr) term_->hub->OnStreamEnd(stream_.get());
    term_ = nullptr;
  }

  Controller& controller_;
  std::shared_ptr<Stream> stream_;
  std::shared_ptr<ControllerTerm> term_;
};

}  // namespace

WorkerServiceImpl::WorkerServiceImpl(Controller& controller, std::string member_name)
    : controller_(controller),
      member_name_(std::move(member_name)),
      executor_(kThreads, kMaxWaiting) {}

absl::Status WorkerServiceImpl::CheckRole(const grpc::CallbackServerContext& context,
                                          const cluster::v1::RegisterRequest& request) const {
  if (member_name_.empty()) return absl::OkStatus();
  const std::string role = RoleName(request.role());
  const std::string name = runtime::PeerName(member_name_, role);
  if (runtime::HasDnsName(runtime::DnsNamesOf(*context.auth_context()), name)) {
    return absl::OkStatus();
  }
  FRESHET_LOG(Warning) << "event=role_refused claimed_role=" << role << " peer=" << context.peer()
                       << " reason=\"the certificate is not that of " << name << "\"";
  return StatusOf(absl::StatusCode::kPermissionDenied,
                  "the certificate of this worker is not that ", "of the role ", role,
                  ": it needs the DNS name ", name);
}

grpc::ServerUnaryReactor* WorkerServiceImpl::Register(grpc::CallbackServerContext* context,
                                                      const cluster::v1::RegisterRequest* request,
                                                      cluster::v1::RegisterReply* reply) {
  return runtime::RunUnary(
      executor_, context, request, reply,
      [this, context](const cluster::v1::RegisterRequest& r,
                      const runtime::CallContext&) -> absl::StatusOr<cluster::v1::RegisterReply> {
        FRESHET_RETURN_IF_ERROR(CheckRole(*context, r));
        const auto term = controller_.Active();
        if (term == nullptr) return NotLeading(controller_.Leader());
        auto registered = term->hub->Register(r);
        if (!registered.ok()) return Led(registered.status(), "", controller_.Leader());
        return registered;
      });
}

grpc::ServerBidiReactor<WorkerStatus, Directive>* WorkerServiceImpl::Heartbeat(
    grpc::CallbackServerContext*) {
  auto reactor = std::make_shared<HeartbeatReactor>(controller_);
  reactor->SetStream(std::make_shared<HeartbeatReactor::Stream>(reactor));
  return HeartbeatReactor::Open(std::move(reactor));
}

grpc::ServerUnaryReactor* WorkerServiceImpl::Deregister(
    grpc::CallbackServerContext* context, const cluster::v1::DeregisterRequest* request,
    cluster::v1::DeregisterReply* reply) {
  return runtime::RunUnary(
      executor_, context, request, reply,
      [this](const cluster::v1::DeregisterRequest& r,
             const runtime::CallContext&) -> absl::StatusOr<cluster::v1::DeregisterReply> {
        const auto term = controller_.Active();
        if (term == nullptr) return NotLeading(controller_.Leader());
        const absl::Status left = term->hub->Deregister(r.worker(), r.epoch());
        if (!left.ok()) return Led(left, "", controller_.Leader());
        return cluster::v1::DeregisterReply();
      });
}

grpc::ServerUnaryReactor* WorkerServiceImpl::FetchRows(grpc::CallbackServerContext* context,
                                                       const cluster::v1::FetchRowsRequest* request,
                                                       cluster::v1::FetchRowsReply* reply) {
  return runtime::RunUnary(
      executor_, context, request, reply,
      [this](const cluster::v1::FetchRowsRequest& r,
             const runtime::CallContext&) -> absl::StatusOr<cluster::v1::FetchRowsReply> {
        const auto term = controller_.Active();
        if (term == nullptr) return NotLeading(controller_.Leader());
        const auto driver = term->manager.Driver(r.job_id());
        if (driver == nullptr) {
          return Explained(NotFound("job ", r.job_id(), " is not at work"), r.job_id());
        }
        auto rows = driver->FetchRows(r);
        if (!rows.ok()) return Explained(rows.status(), r.job_id());
        return rows;
      });
}

}  // namespace freshet
