#include "controller/api/job_service.h"

#include <algorithm>
#include <utility>

#include "absl/time/clock.h"
#include "base/status_macros.h"
#include "controller/api/api_errors.h"
#include "controller/api/job_changes.h"
#include "controller/api/job_files.h"
#include "controller/api/job_streams.h"
#include "services/runtime/channel.h"
#include "services/runtime/status.h"
#include "services/runtime/unary.h"

namespace freshet {
namespace {

using job::v1::JobService;

// The job that a request names; "" if it names none.
template <typename Request>
std::string JobOf(const Request& request) {
  if constexpr (requires { request.job_id(); }) {
    return request.job_id();
  } else {
    return "";
  }
}

// When the caller of a call that has just come gives up, at the earliest. gRPC rounds the time that
// is left up, by at most 1 % each on the way to a standby and from there to the leader.
absl::Time EarliestGiveUp(const grpc::CallbackServerContext& context) {
  const absl::Time deadline = runtime::DeadlineOf(context);
  return deadline - 0.02 * (deadline - absl::Now());
}

// Longest relayed stream.
constexpr absl::Duration kLongestRelay = absl::Hours(4);

}  // namespace

JobServiceImpl::JobServiceImpl(Controller& controller, runtime::ChannelCache& channels,
                               JobServiceOptions options)
    : controller_(controller),
      channels_(channels),
      reader_(controller),
      submitter_(controller, options.max_jobs, options.random),
      options_(std::move(options)),
      leader_calls_([&controller] { return controller.Leader(); }),
      executor_(options_.unary_threads, kMaxWaiting),
      streams_(options_.max_streams) {}

void JobServiceImpl::Stop() {
  executor_.Stop();
  streams_.Stop();
  leader_calls_.Stop();
}

template <typename Request, typename Response>
absl::StatusOr<Response> JobServiceImpl::AskLeader(const CallOrigin& origin, const Request& request,
                                                   absl::Duration timeout,
                                                   const runtime::CallContext& call,
                                                   UnaryMethod<Request, Response> method) {
  FRESHET_ASSIGN_OR_RETURN(const LeaderLink link,
                           LinkToLeader(controller_.Leader(), channels_, origin, timeout));
  LeaderCalls::Call pending(leader_calls_, link.leader, *link.context, call.cancelled);
  Response response;
  FRESHET_RETURN_IF_ERROR(pending.Answer(
      runtime::GrpcToStatus((link.stub.get()->*method)(link.context.get(), request, &response))));
  return response;
}

template <typename Request, typename Response>
grpc::ServerUnaryReactor* JobServiceImpl::Lead(
    grpc::CallbackServerContext* context, const Request* request, Response* response,
    UnaryMethod<Request, Response> method,
    std::type_identity_t<std::function<absl::StatusOr<Response>(ControllerTerm&)>> answer) {
  return runtime::RunUnary(
      executor_, context, request, response,
      [this, method, answer = std::move(answer), origin = OriginOf(*context)](
          const Request& r, const runtime::CallContext& call) -> absl::StatusOr<Response> {
        if (const auto term = controller_.Active()) {
          absl::StatusOr<Response> answered = answer(*term);
          if (!answered.ok()) return Led(answered.status(), JobOf(r), controller_.Leader());
          return answered;
        }
        return AskLeader(origin, r,
                         std::min(options_.forward_deadline, call.deadline - absl::Now()), call,
                         method);
      });
}

template <typename Request, typename Response, typename Answer>
grpc::ServerUnaryReactor* JobServiceImpl::Read(grpc::CallbackServerContext* context,
                                               const Request* request, Response* response,
                                               Answer answer) {
  return runtime::RunUnary(
      executor_, context, request, response,
      [answer = std::move(answer)](const Request& r,
                                   const runtime::CallContext& call) -> absl::StatusOr<Response> {
        absl::StatusOr<Response> answered = answer(call);
        if (!answered.ok()) return Explained(answered.status(), JobOf(r));
        return answered;
      });
}

grpc::ServerUnaryReactor* JobServiceImpl::Submit(grpc::CallbackServerContext* context,
                                                 const job::v1::SubmitRequest* request,
                                                 job::v1::Job* job) {
  const auto given_up = [context, at = EarliestGiveUp(*context)] {
    return context->IsCancelled() || absl::Now() >= at;
  };
  return Lead(context, request, job, &JobService::Stub::Submit,
              [this, request, given_up](ControllerTerm& term) {
                return submitter_.Submit(term, *request, given_up);
              });
}

grpc::ServerUnaryReactor* JobServiceImpl::Validate(grpc::CallbackServerContext* context,
                                                   const job::v1::ValidateRequest* request,
                                                   job::v1::ValidateReply* reply) {
  return Read(context, request, reply, [this, request](const runtime::CallContext&) {
    return submitter_.Validate(*request);
  });
}

grpc::ServerUnaryReactor* JobServiceImpl::Get(grpc::CallbackServerContext* context,
                                              const job::v1::GetRequest* request,
                                              job::v1::Job* job) {
  return Read(context, request, job,
              [this, request, origin = OriginOf(*context)](const runtime::CallContext& call) {
                if (controller_.Active() == nullptr) {
                  // Only the leader knows what the job waits for. Without it, the rest is returned.
                  absl::StatusOr<job::v1::Job> live =
                      AskLeader(origin, *request,
                                std::min(options_.live_deadline, (call.deadline - absl::Now()) / 2),
                                call, &JobService::Stub::Get);
                  if (live.ok()) return live;
                }
                return reader_.Get(request->job_id());
              });
}

grpc::ServerUnaryReactor* JobServiceImpl::List(grpc::CallbackServerContext* context,
                                               const job::v1::ListRequest* request,
                                               job::v1::ListReply* reply) {
  return Read(context, request, reply,
              [this, request](const runtime::CallContext&) { return reader_.List(*request); });
}

grpc::ServerUnaryReactor* JobServiceImpl::Pause(grpc::CallbackServerContext* context,
                                                const job::v1::PauseRequest* request,
                                                job::v1::Job* job) {
  return Lead(
      context, request, job, &JobService::Stub::Pause,
      [this, request](ControllerTerm& term) { return PauseJob(controller_, term, *request); });
}

grpc::ServerUnaryReactor* JobServiceImpl::Resume(grpc::CallbackServerContext* context,
                                                 const job::v1::ResumeRequest* request,
                                                 job::v1::Job* job) {
  return Lead(
      context, request, job, &JobService::Stub::Resume,
      [this, request](ControllerTerm& term) { return ResumeJob(controller_, term, *request); });
}

grpc::ServerUnaryReactor* JobServiceImpl::Cancel(grpc::CallbackServerContext* context,
                                                 const job::v1::CancelRequest* request,
                                                 job::v1::Job* job) {
  return Lead(
      context, request, job, &JobService::Stub::Cancel,
      [this, request](ControllerTerm& term) { return CancelJob(controller_, term, *request); });
}

grpc::ServerUnaryReactor* JobServiceImpl::Delete(grpc::CallbackServerContext* context,
                                                 const job::v1::DeleteRequest* request,
                                                 job::v1::DeleteReply* reply) {
  return Lead(
      context, request, reply, &JobService::Stub::Delete,
      [this, request](ControllerTerm& term) { return DeleteJob(controller_, term, *request); });
}

grpc::ServerUnaryReactor* JobServiceImpl::Scale(grpc::CallbackServerContext* context,
                                                const job::v1::ScaleRequest* request,
                                                job::v1::ScaleReply* reply) {
  return Lead(
      context, request, reply, &JobService::Stub::Scale,
      [request](ControllerTerm& term) -> absl::StatusOr<job::v1::ScaleReply> {
        FRESHET_ASSIGN_OR_RETURN(
            const int32_t before,
            term.scaler.SetWanted(request->role(), request->pool(), request->replicas(),
                                  request->keep_workers() ? Surplus::kStays : Surplus::kDrains));
        job::v1::ScaleReply scaled;
        scaled.set_before(before);
        scaled.set_wanted(request->replicas());
        return scaled;
      });
}

grpc::ServerUnaryReactor* JobServiceImpl::ListCheckpoints(
    grpc::CallbackServerContext* context, const job::v1::ListCheckpointsRequest* request,
    job::v1::ListCheckpointsReply* reply) {
  return Lead(context, request, reply, &JobService::Stub::ListCheckpoints,
              [this, request](ControllerTerm& term) {
                return ListJobCheckpoints(controller_, term, *request);
              });
}

grpc::ServerUnaryReactor* JobServiceImpl::GetCluster(grpc::CallbackServerContext* context,
                                                     const job::v1::GetClusterRequest* request,
                                                     job::v1::Cluster* reply) {
  return Lead(context, request, reply, &JobService::Stub::GetCluster,
              [this](ControllerTerm& term) { return reader_.Cluster(term); });
}

grpc::ServerWriteReactor<job::v1::Event>* JobServiceImpl::Watch(
    grpc::CallbackServerContext*, const job::v1::WatchRequest* request) {
  return streams_.Run<job::v1::Event>([this, r = *request](StreamSink<job::v1::Event>& sink) {
    return Explained(SendEvents(controller_, r, sink), r.job_id());
  });
}

grpc::ServerWriteReactor<job::v1::LedgerChunk>* JobServiceImpl::ReadLedger(
    grpc::CallbackServerContext*, const job::v1::ReadLedgerRequest* request) {
  return streams_.Run<job::v1::LedgerChunk>(
      [this, r = *request](StreamSink<job::v1::LedgerChunk>& sink) {
        return Explained(SendLedger(controller_, r, sink), r.job_id());
      });
}

template <typename Request, typename Message>
grpc::ServerWriteReactor<Message>* JobServiceImpl::LeadStream(
    grpc::CallbackServerContext* context, const Request* request,
    StreamMethod<Request, Message> method,
    std::type_identity_t<StreamAnswer<Request, Message>> send) {
  return streams_.Run<Message>(
      [this, r = *request, method, send = std::move(send), origin = OriginOf(*context),
       deadline = runtime::DeadlineOf(*context)](StreamSink<Message>& sink) {
        const auto term = controller_.Active();
        const absl::Status sent = term != nullptr ? send(*term, r, deadline, sink)
                                                  : Relay(origin, r, deadline, method, sink);
        return Explained(sent, r.job_id());
      });
}

template <typename Request, typename Message>
absl::Status JobServiceImpl::Relay(const CallOrigin& origin, const Request& request,
                                   absl::Time deadline, StreamMethod<Request, Message> method,
                                   StreamSink<Message>& sink) {
  FRESHET_ASSIGN_OR_RETURN(const LeaderLink link,
                           LinkToLeader(controller_.Leader(), channels_, origin,
                                        std::min(kLongestRelay, deadline - absl::Now())));
  const auto reader = (link.stub.get()->*method)(link.context.get(), request);
  LeaderCalls::Call pending(leader_calls_, link.leader, *link.context,
                            [&sink] { return sink.ended(); });
  Message message;
  bool gone = false;
  while (!gone && reader->Read(&message)) gone = !sink.Write(message);
  if (gone) link.context->TryCancel();
  const absl::Status status = runtime::GrpcToStatus(reader->Finish());
  return gone ? ClientIsGone() : pending.Answer(status);
}

grpc::ServerWriteReactor<job::v1::LogEntry>* JobServiceImpl::Logs(
    grpc::CallbackServerContext* context, const job::v1::LogsRequest* request) {
  return LeadStream(
      context, request, &JobService::Stub::Logs,
      [this](ControllerTerm& term, const job::v1::LogsRequest& r, absl::Time,
             StreamSink<job::v1::LogEntry>& sink) { return SendLogs(controller_, term, r, sink); });
}

grpc::ServerWriteReactor<job::v1::FileChunk>* JobServiceImpl::ExportCheckpoint(
    grpc::CallbackServerContext* context, const job::v1::ExportCheckpointRequest* request) {
  return LeadStream(context, request, &JobService::Stub::ExportCheckpoint,
                    [this](ControllerTerm& term, const job::v1::ExportCheckpointRequest& r,
                           absl::Time deadline, StreamSink<job::v1::FileChunk>& sink) {
                      return ExportFiles(controller_, term, r, deadline, sink);
                    });
}

grpc::ServerUnaryReactor* JobServiceImpl::ListSamples(grpc::CallbackServerContext* context,
                                                      const job::v1::ListSamplesRequest* request,
                                                      job::v1::ListSamplesReply* reply) {
  return Read(context, request, reply,
              [this, request](const runtime::CallContext&) { return reader_.Samples(*request); });
}

}  // namespace freshet
