#include "weights/grpc/weight_puller.h"

#include <grpcpp/client_context.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/support/client_callback.h>

#include <algorithm>
#include <string>
#include <utility>

#include "base/random.h"
#include "base/status_macros.h"
#include "base/str_cat.h"
#include "freshet/weights/v1/weight_service.pb.h"
#include "services/runtime/channel.h"
#include "services/runtime/status.h"
#include "weights/grpc/chunk_codec.h"
#include "weights/grpc/event_count.h"
#include "weights/grpc/manifest_codec.h"
#include "weights/weight_buffer_pool.h"
#include "weights/weight_reception.h"

namespace freshet {
namespace {

// Maximum size of the combined messages of one pull's sources.
constexpr size_t kMaxReasonBytes = 500;

constexpr char kPullMethod[] = "/freshet.weights.v1.WeightService/Pull";

// One Pull call. Receives the version as it arrives. Keeps itself alive until gRPC is done with it.
class PullCall final : public grpc::ClientBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  struct News {
    bool heard = false;  // something arrived since the last Listen
    bool done = false;
    absl::Status status;
    std::shared_ptr<WeightReception> reception;
    CommitReceipt receipt;
  };

  static std::shared_ptr<PullCall> Open(const std::shared_ptr<grpc::Channel>& channel,
                                        const PullOptions& options,
                                        std::shared_ptr<EventCount> events) {
    std::shared_ptr<PullCall> call(new PullCall(channel, options.limits, std::move(events)));
    call->self_ = call;
    weights::v1::PullRequest request;
    request.set_job(options.job);
    PolicyToProto(options.at_least, *request.mutable_at_least());
    call->outgoing_ = EncodeMessage(request);
    runtime::SetDeadline(call->context_, options.timeout);
    grpc::GenericStub(channel).PrepareBidiStreamingCall(&call->context_, kPullMethod, {},
                                                        call.get());
    call->StartRead(&call->incoming_);
    call->StartWriteLast(&call->outgoing_, grpc::WriteOptions());
    call->StartCall();
    return call;
  }

  News Listen() ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(mu_);
    News news = news_;
    news_.heard = false;
    return news;
  }
  void Cancel() { context_.TryCancel(); }

  void OnReadDone(bool ok) override {
    if (!ok) return;
    const absl::Status status = Take();
    {
      MutexLock lock(mu_);
      news_.heard = true;
      if (!status.ok()) news_.status = status;
    }
    events_->Notify();
    if (status.ok()) {
      StartRead(&incoming_);
    } else {
      context_.TryCancel();
    }
  }
  void OnDone(const grpc::Status& status) override {
    {
      MutexLock lock(mu_);
      news_.done = true;
      if (news_.status.ok()) news_.status = runtime::GrpcToStatus(status);
    }
    events_->Notify();
    self_.reset();  // may destroy this object
  }

 private:
  PullCall(std::shared_ptr<grpc::Channel> channel, const WeightLimits& limits,
           std::shared_ptr<EventCount> events)
      : channel_(std::move(channel)), limits_(limits), events_(std::move(events)) {}

  absl::Status Take() ABSL_LOCKS_EXCLUDED(mu_) {
    if (reception_ != nullptr) return AppendChunk(incoming_, *reception_);
    FRESHET_ASSIGN_OR_RETURN(const auto reply, DecodeMessage<weights::v1::PullReply>(incoming_));
    if (!reply.has_header()) return InvalidArgument("the first reply is not a header");
    FRESHET_ASSIGN_OR_RETURN(
        reception_,
        WeightReception::Create(ManifestFromProto(reply.header().manifest()), limits_, pool_));
    MutexLock lock(mu_);
    news_.reception = reception_;
    news_.receipt = ReceiptFromProto(reply.header().receipt());
    return absl::OkStatus();
  }

  const std::shared_ptr<grpc::Channel> channel_;
  const WeightLimits limits_;
  const std::shared_ptr<EventCount> events_;
  grpc::ClientContext context_;
  grpc::ByteBuffer outgoing_;
  grpc::ByteBuffer incoming_;
  WeightBufferPool pool_;
  std::shared_ptr<WeightReception> reception_;
  std::shared_ptr<PullCall> self_;
  Mutex mu_;
  News news_ ABSL_GUARDED_BY(mu_);
};

// Waits until `call` ends or is silent for `silence`.
PullCall::News Await(PullCall& call, EventCount& events, const Clock& clock,
                     absl::Duration silence) {
  absl::Time heard = clock.Now();
  while (true) {
    const uint64_t seen = events.count();
    PullCall::News news = call.Listen();
    if (news.done) return news;
    const absl::Time now = clock.Now();
    if (news.heard) heard = now;
    if (now - heard >= silence) {
      call.Cancel();
      news.status =
          absl::DeadlineExceededError(StrCat("no data for ", absl::FormatDuration(silence)));
      return news;
    }
    events.Await(seen, silence - (now - heard));
  }
}

absl::Status PullFrom(const WeightMember& source, const PullOptions& options,
                      const ChannelSource& channels, WeightSubscriber& subscriber,
                      const Clock& clock, WeightSyncObserver* observer) {
  const std::shared_ptr<grpc::Channel> channel = channels(source.address);
  if (channel == nullptr) return absl::UnavailableError("no channel");
  const auto events = std::make_shared<EventCount>();
  const std::shared_ptr<PullCall> call = PullCall::Open(channel, options, events);
  const std::stop_callback cancel(options.stop, [&call] { call->Cancel(); });
  const PullCall::News news = Await(*call, *events, clock, options.silence_timeout);
  FRESHET_RETURN_IF_ERROR(news.status);
  if (news.reception == nullptr) return DataLoss("no manifest received");
  const WeightManifest& manifest = news.reception->manifest();
  FRESHET_ASSIGN_OR_RETURN(const int64_t verified, news.reception->Verified());
  if (verified != manifest.total_bytes) {
    return DataLoss("the stream ended before the version was complete");
  }
  if (manifest.policy < options.at_least) {
    return FailedPrecondition("version ", manifest.policy.version, " is older than version ",
                              options.at_least.version);
  }
  if (observer != nullptr) {
    observer->OnPhase(WeightPhase::kVerify, news.reception->verify_time());
  }
  return subscriber.TakeFromPeer({{manifest, news.reception->bytes()}, news.receipt});
}

}  // namespace

std::vector<WeightMember> PullOrder(std::vector<WeightMember> engines,
                                    const std::optional<WeightMember>& trainer, TrainerPlace place,
                                    uint64_t seed, std::string_view site) {
  if (!engines.empty()) {
    const auto first = static_cast<ptrdiff_t>(RandomBits(seed, 0) % engines.size());
    std::rotate(engines.begin(), engines.begin() + first, engines.end());
  }
  if (trainer.has_value()) {
    engines.insert(place == TrainerPlace::kFirst ? engines.begin() : engines.end(), *trainer);
  }
  std::stable_partition(engines.begin(), engines.end(),
                        [site](const WeightMember& member) { return member.site == site; });
  return engines;
}

absl::StatusOr<PolicyVersion> PullWeights(const PullOptions& options,
                                          const std::vector<WeightMember>& sources,
                                          const ChannelSource& channels,
                                          const std::shared_ptr<WeightSubscriber>& subscriber,
                                          const Clock& clock, WeightSyncObserver* observer) {
  absl::Status status = NotFound("no member of the weight plane to pull from");
  std::string reasons;
  for (const WeightMember& source : sources) {
    if (options.stop.stop_requested()) {
      return StatusOf(absl::StatusCode::kCancelled, "the engine is stopping");
    }
    status = PullFrom(source, options, channels, *subscriber, clock, observer);
    // A publication that arrived meanwhile is good enough.
    const std::optional<CommittedWeights> active = subscriber->Committed();
    if (active.has_value() && active->snapshot.manifest.policy >= options.at_least) {
      return active->snapshot.manifest.policy;
    }
    // Before the first version no member has one; this is not a failure.
    if (observer != nullptr && status.code() != absl::StatusCode::kNotFound) {
      observer->OnFailure(WeightFailureCause(status));
    }
    if (reasons.size() > kMaxReasonBytes) reasons.resize(kMaxReasonBytes);
    reasons += StrCat(reasons.empty() ? "" : "; ", source.worker, ": ", Message(status));
    status = StatusOf(status.code(), reasons);
  }
  return status;
}

}  // namespace freshet
