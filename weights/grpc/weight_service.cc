#include "weights/grpc/weight_service.h"

#include <algorithm>
#include <utility>

#include "absl/time/clock.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "base/str_cat.h"
#include "services/runtime/status.h"
#include "services/runtime/unary.h"
#include "weights/grpc/chunk_codec.h"
#include "weights/grpc/manifest_codec.h"
#include "weights/grpc/prepare_reactor.h"

namespace freshet {
namespace {

constexpr int kCallThreads = 4;
// How long a question waits for a broadcast that is ending, and of its own time.
constexpr absl::Duration kAskWait = absl::Seconds(10);
constexpr double kAskShare = 0.75;

// Streams a committed version: header, then chunks.
class PullReactor final : public grpc::ServerWriteReactor<grpc::ByteBuffer> {
 public:
  PullReactor(absl::StatusOr<CommittedWeights> weights, std::function<void()> on_end)
      : weights_(std::move(weights)), on_end_(std::move(on_end)) {
    if (!weights_.ok()) {
      Finish(runtime::StatusToGrpc(weights_.status()));
      return;
    }
    weights::v1::PullReply reply;
    ManifestToProto(weights_->snapshot.manifest, *reply.mutable_header()->mutable_manifest());
    ReceiptToProto(weights_->receipt, *reply.mutable_header()->mutable_receipt());
    outgoing_ = EncodeMessage(reply);
    StartWrite(&outgoing_);
  }

  void OnWriteDone(bool ok) override {
    const WeightSnapshot& snapshot = weights_->snapshot;
    const int64_t size = std::min(kMaxChunkBytes, snapshot.manifest.total_bytes - sent_);
    if (!ok) {
      Finish(grpc::Status(grpc::StatusCode::CANCELLED, "the caller disconnected"));
    } else if (size == 0) {
      Finish(grpc::Status::OK);
    } else {
      outgoing_ = EncodeChunk(snapshot.bytes, sent_, size);
      sent_ += size;
      StartWrite(&outgoing_);
    }
  }
  void OnDone() override {
    on_end_();
    delete this;
  }

 private:
  const absl::StatusOr<CommittedWeights> weights_;
  const std::function<void()> on_end_;
  grpc::ByteBuffer outgoing_;
  int64_t sent_ = 0;
};

}  // namespace

struct GrpcWeightService::Pulls {
  Mutex mu;
  int running ABSL_GUARDED_BY(mu) = 0;
};

GrpcWeightService::GrpcWeightService(WeightServiceOptions options, ChannelSource channels,
                                     const Clock& clock, WeightSyncObserver* observer)
    : options_(std::move(options)),
      channels_(std::move(channels)),
      clock_(clock),
      observer_(observer),
      pulls_(std::make_shared<Pulls>()),
      relays_(options_.max_streams, static_cast<size_t>(options_.max_streams)),
      broadcasts_(options_.max_streams, static_cast<size_t>(options_.max_streams)),
      calls_(kCallThreads, kMaxQueuedCalls) {}

GrpcWeightService::~GrpcWeightService() {
  std::map<std::string, Served> jobs;
  {
    MutexLock lock(mu_);
    jobs.swap(jobs_);
  }
  for (const auto& [job, served] : jobs) {
    if (served.receiver != nullptr) served.receiver->Close("the process is ending");
  }
  broadcasts_.Stop();
  relays_.Stop();
  calls_.Stop();
}

void GrpcWeightService::Serve(const std::string& job, WeightEndpoint endpoint) {
  if (!endpoint.committed && endpoint.subscriber != nullptr) {
    endpoint.committed = [subscriber = endpoint.subscriber] { return subscriber->Committed(); };
  }
  Served served{std::move(endpoint), nullptr, std::make_shared<MemoryFileReader>()};
  if (served.endpoint.subscriber != nullptr && !served.endpoint.broadcast_backend.empty()) {
    served.receiver =
        std::make_shared<BroadcastReceiver>(options_.open_backend, served.endpoint.subscriber,
                                            served.endpoint.limits, clock_, observer_);
  }
  Forget(job);
  MutexLock lock(mu_);
  jobs_[job] = std::move(served);
}

void GrpcWeightService::Forget(const std::string& job) {
  std::shared_ptr<PrepareReactor> running;
  std::shared_ptr<BroadcastReceiver> receiver;
  {
    MutexLock lock(mu_);
    if (auto found = jobs_.extract(job)) receiver = std::move(found.mapped().receiver);
    if (const auto current = current_.extract(job)) running = current.mapped().lock();
  }
  const std::string reason = StrCat("this member has left job ", job);
  if (running != nullptr) running->Abort(reason);
  if (receiver != nullptr) receiver->Close(reason);
}

absl::StatusOr<GrpcWeightService::Served> GrpcWeightService::FindServed(const std::string& job) {
  MutexLock lock(mu_);
  const auto found = jobs_.find(job);
  if (found == jobs_.end()) {
    return NotFound("this process does not work on job '", job.substr(0, 100), "'");
  }
  return found->second;
}

absl::StatusOr<WeightEndpoint> GrpcWeightService::Find(const std::string& job) {
  FRESHET_ASSIGN_OR_RETURN(Served served, FindServed(job));
  return std::move(served.endpoint);
}

void GrpcWeightService::TakeOver(const std::string& job, std::shared_ptr<PrepareReactor> reactor) {
  std::shared_ptr<PrepareReactor> former;
  {
    MutexLock lock(mu_);
    former = std::exchange(current_[job], std::move(reactor)).lock();
  }
  if (former != nullptr) former->Abort("superseded by a newer call");
}

int GrpcWeightService::open_prepares() const {
  MutexLock lock(mu_);
  return prepares_;
}

int GrpcWeightService::open_pulls() const {
  MutexLock lock(pulls_->mu);
  return pulls_->running;
}

void GrpcWeightService::Ended() {
  MutexLock lock(mu_);
  --prepares_;
}

grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* GrpcWeightService::Prepare(
    grpc::CallbackServerContext* context) {
  absl::Status refused;
  {
    MutexLock lock(mu_);
    if (++prepares_ > options_.max_streams) {
      refused = ResourceExhausted(options_.max_streams, " Prepare calls are running already");
    }
  }
  return PrepareReactor::Open(std::make_shared<PrepareReactor>(*this, context, std::move(refused)));
}

absl::StatusOr<weights::v1::PrepareReply> GrpcWeightService::TakeShared(
    const weights::v1::PrepareSharedRequest& request) {
  FRESHET_ASSIGN_OR_RETURN(const Served served, FindServed(request.job()));
  const WeightEndpoint& endpoint = served.endpoint;
  if (endpoint.subscriber == nullptr) {
    return FailedPrecondition("this member takes no weights of job ", request.job());
  }
  if (options_.host.empty() || request.host() != options_.host) {
    return absl::UnimplementedError("the caller's memory is on another host");
  }
  const WeightManifest manifest = ManifestFromProto(request.manifest());
  FRESHET_RETURN_IF_ERROR(CheckManifest(manifest, endpoint.limits));
  FRESHET_ASSIGN_OR_RETURN(const WeightSubscriber::Admission admission,
                           endpoint.subscriber->Admit(manifest));
  weights::v1::PrepareReply reply;
  ResultToProto("", absl::OkStatus(), *reply.add_members());
  if (admission == WeightSubscriber::Admission::kHeld) return reply;
  const absl::Time start = clock_.Now();
  FRESHET_ASSIGN_OR_RETURN(WeightBytes bytes, served.files->Map(request.path(), manifest));
  if (observer_ != nullptr) observer_->OnPhase(WeightPhase::kVerify, clock_.Now() - start);
  if (endpoint.device_copies != nullptr && request.has_device_copy()) {
    const LogScope scope(request.job());
    bytes = endpoint.device_copies->Attach(std::move(bytes), request.path(),
                                           OfferFromProto(request.device_copy()));
    reply.set_device_copy(bytes->device_copy().has_value());
  }
  FRESHET_RETURN_IF_ERROR(endpoint.subscriber->PrepareVerified(manifest, std::move(bytes)));
  return reply;
}

grpc::ServerUnaryReactor* GrpcWeightService::PrepareShared(
    grpc::CallbackServerContext* context, const weights::v1::PrepareSharedRequest* request,
    weights::v1::PrepareReply* reply) {
  return runtime::RunUnary(calls_, context, request, reply,
                           [this](const weights::v1::PrepareSharedRequest& shared,
                                  const runtime::CallContext&) { return TakeShared(shared); });
}

absl::StatusOr<BroadcastReceiver::Reply> GrpcWeightService::TakeBroadcast(
    const weights::v1::PrepareBroadcastRequest& request, const runtime::CallContext& call) {
  FRESHET_ASSIGN_OR_RETURN(const Served served, FindServed(request.job()));
  const LogScope scope(request.job());
  if (served.endpoint.subscriber == nullptr) {
    return FailedPrecondition("this member takes no weights of job ", request.job());
  }
  if (served.receiver == nullptr || request.backend() != served.endpoint.broadcast_backend) {
    return absl::UnimplementedError(StrCat("this engine takes part in no broadcasts by '",
                                           request.backend().substr(0, 100), "' of job ",
                                           request.job()));
  }
  const absl::Duration left = call.deadline - absl::Now();
  if (left > options_.max_call) {
    return InvalidArgument("the call needs a deadline of at most ",
                           absl::FormatDuration(options_.max_call));
  }
  WeightManifest manifest = ManifestFromProto(request.manifest());
  if (request.groups().empty())
    return served.receiver->Ask(manifest, request.backend(),
                                clock_.Now() + std::min(kAskShare * left, kAskWait));
  BroadcastOrder order;
  order.manifest = std::move(manifest);
  order.backend = request.backend();
  for (const weights::v1::BroadcastGroup& group : request.groups()) {
    order.groups.push_back({group.id(), group.rank(), group.size(), group.rendezvous()});
    for (const weights::v1::ByteRange& range : group.ranges()) {
      order.groups.back().ranges.push_back({range.first(), range.size()});
    }
  }
  order.piece_bytes = request.piece_bytes();
  order.silence_timeout =
      SilenceFromProto(request.has_silence_timeout() ? &request.silence_timeout() : nullptr, left);
  return served.receiver->Receive(order, clock_.Now() + left, call.cancelled);
}

grpc::ServerUnaryReactor* GrpcWeightService::PrepareBroadcast(
    grpc::CallbackServerContext* context, const weights::v1::PrepareBroadcastRequest* request,
    weights::v1::PrepareBroadcastReply* reply) {
  return runtime::RunUnary(
      !request->groups().empty() ? broadcasts_ : calls_, context, request, reply,
      [this](
          const weights::v1::PrepareBroadcastRequest& broadcast,
          const runtime::CallContext& call) -> absl::StatusOr<weights::v1::PrepareBroadcastReply> {
        FRESHET_ASSIGN_OR_RETURN(const BroadcastReceiver::Reply taken,
                                 TakeBroadcast(broadcast, call));
        weights::v1::PrepareBroadcastReply result;
        result.set_prepared(taken.prepared);
        result.set_verified(taken.verified);
        return result;
      });
}

grpc::ServerUnaryReactor* GrpcWeightService::Activate(grpc::CallbackServerContext* context,
                                                      const weights::v1::ActivateRequest* request,
                                                      weights::v1::ActivateReply* reply) {
  return runtime::RunUnary(
      calls_, context, request, reply,
      [this](const weights::v1::ActivateRequest& activate,
             const runtime::CallContext&) -> absl::StatusOr<weights::v1::ActivateReply> {
        FRESHET_ASSIGN_OR_RETURN(const WeightEndpoint endpoint, Find(activate.job()));
        if (endpoint.subscriber == nullptr) {
          return FailedPrecondition("this member takes no weights of job ", activate.job());
        }
        FRESHET_RETURN_IF_ERROR(
            endpoint.subscriber->Activate(ReceiptFromProto(activate.receipt())));
        return weights::v1::ActivateReply();
      });
}

absl::StatusOr<CommittedWeights> GrpcWeightService::FindCommitted(const grpc::ByteBuffer& request) {
  FRESHET_ASSIGN_OR_RETURN(const auto pull, DecodeMessage<weights::v1::PullRequest>(request));
  FRESHET_ASSIGN_OR_RETURN(const WeightEndpoint endpoint, Find(pull.job()));
  std::optional<CommittedWeights> committed;
  if (endpoint.committed) committed = endpoint.committed();
  if (!committed.has_value()) return NotFound("no committed version yet");
  const PolicyVersion at_least = PolicyFromProto(pull.at_least());
  const PolicyVersion held = committed->snapshot.manifest.policy;
  if (held < at_least) {
    return FailedPrecondition("version ", held.version, " of lineage ", held.lineage,
                              " is older than version ", at_least.version, " of lineage ",
                              at_least.lineage);
  }
  return *std::move(committed);
}

grpc::ServerWriteReactor<grpc::ByteBuffer>* GrpcWeightService::Pull(
    grpc::CallbackServerContext* context, const grpc::ByteBuffer* request) {
  absl::StatusOr<CommittedWeights> weights = FindCommitted(*request);
  if (runtime::DeadlineOf(*context) - absl::Now() > options_.max_call) {
    weights = InvalidArgument("the call needs a deadline of at most ",
                              absl::FormatDuration(options_.max_call));
  }
  {
    MutexLock lock(pulls_->mu);
    if (++pulls_->running > options_.max_streams) {
      weights = ResourceExhausted(options_.max_streams, " Pull calls are running already");
    }
  }
  return new PullReactor(std::move(weights), [pulls = pulls_] {
    MutexLock lock(pulls->mu);
    --pulls->running;
  });
}

}  // namespace freshet
