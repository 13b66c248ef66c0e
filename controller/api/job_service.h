#ifndef FRESHET_CONTROLLER_API_JOB_SERVICE_H_
#define FRESHET_CONTROLLER_API_JOB_SERVICE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <type_traits>

#include "controller/api/job_reader.h"
#include "controller/api/job_submitter.h"
#include "controller/api/leader_call.h"
#include "controller/api/stream_pool.h"
#include "controller/jobs/driver/controller.h"
#include "freshet/job/v1/job_service.grpc.pb.h"
#include "services/runtime/executor.h"
#include "services/runtime/unary.h"
#include "services/worker/channel_cache.h"

namespace freshet {

struct JobServiceOptions {
  size_t max_jobs = 1000;  // not ended
  int unary_threads = 8;
  int max_streams = 64;
  absl::Duration forward_deadline = absl::Seconds(30);  // if the caller has none
  // How long a standby waits for the leader's live state of a job before it returns the rest.
  absl::Duration live_deadline = absl::Seconds(2);
  std::function<uint64_t()> random;  // for generated ids
};

// JobService over gRPC. Any controller serves what is in the record store and the event log: List,
// Validate, Watch, ListSamples, ReadLedger, and Get if the leader does not answer. Standbys forward
// all other calls, including streams, to the leader. Thread-safe.
class JobServiceImpl final : public job::v1::JobService::CallbackService {
 public:
  // Both must outlive the service. `channels` connects to other controllers.
  JobServiceImpl(Controller& controller, runtime::ChannelCache& channels,
                 JobServiceOptions options);

  grpc::ServerUnaryReactor* Submit(grpc::CallbackServerContext*, const job::v1::SubmitRequest*,
                                   job::v1::Job*) override;
  grpc::ServerUnaryReactor* Validate(grpc::CallbackServerContext*, const job::v1::ValidateRequest*,
                                     job::v1::ValidateReply*) override;
  grpc::ServerUnaryReactor* Get(grpc::CallbackServerContext*, const job::v1::GetRequest*,
                                job::v1::Job*) override;
  grpc::ServerUnaryReactor* List(grpc::CallbackServerContext*, const job::v1::ListRequest*,
                                 job::v1::ListReply*) override;
  grpc::ServerWriteReactor<job::v1::Event>* Watch(grpc::CallbackServerContext*,
                                                  const job::v1::WatchRequest*) override;
  grpc::ServerUnaryReactor* Pause(grpc::CallbackServerContext*, const job::v1::PauseRequest*,
                                  job::v1::Job*) override;
  grpc::ServerUnaryReactor* Resume(grpc::CallbackServerContext*, const job::v1::ResumeRequest*,
                                   job::v1::Job*) override;
  grpc::ServerUnaryReactor* Cancel(grpc::CallbackServerContext*, const job::v1::CancelRequest*,
                                   job::v1::Job*) override;
  grpc::ServerUnaryReactor* Delete(grpc::CallbackServerContext*, const job::v1::DeleteRequest*,
                                   job::v1::DeleteReply*) override;
  grpc::ServerUnaryReactor* Scale(grpc::CallbackServerContext*, const job::v1::ScaleRequest*,
                                  job::v1::ScaleReply*) override;
  grpc::ServerUnaryReactor* ListCheckpoints(grpc::CallbackServerContext*,
                                            const job::v1::ListCheckpointsRequest*,
                                            job::v1::ListCheckpointsReply*) override;
  grpc::ServerWriteReactor<job::v1::FileChunk>* ExportCheckpoint(
      grpc::CallbackServerContext*, const job::v1::ExportCheckpointRequest*) override;
  grpc::ServerUnaryReactor* ListSamples(grpc::CallbackServerContext*,
                                        const job::v1::ListSamplesRequest*,
                                        job::v1::ListSamplesReply*) override;
  grpc::ServerWriteReactor<job::v1::LedgerChunk>* ReadLedger(
      grpc::CallbackServerContext*, const job::v1::ReadLedgerRequest*) override;
  grpc::ServerWriteReactor<job::v1::LogEntry>* Logs(grpc::CallbackServerContext*,
                                                    const job::v1::LogsRequest*) override;
  grpc::ServerUnaryReactor* GetCluster(grpc::CallbackServerContext*,
                                       const job::v1::GetClusterRequest*,
                                       job::v1::Cluster*) override;

  // Stops the threads. The server must be shut down first.
  void Stop();

  static constexpr size_t kMaxWaiting = 256;
  size_t queued_calls() const { return executor_.queued(); }
  int open_streams() const { return streams_.open(); }

 private:
  template <typename Request, typename Response>
  using UnaryMethod = grpc::Status (job::v1::JobService::Stub::*)(grpc::ClientContext*,
                                                                  const Request&, Response*);
  template <typename Request, typename Message>
  using StreamMethod = std::unique_ptr<grpc::ClientReader<Message>> (job::v1::JobService::Stub::*)(
      grpc::ClientContext*, const Request&);
  template <typename Request, typename Message>
  using StreamAnswer = std::function<absl::Status(ControllerTerm&, const Request&,
                                                  absl::Time deadline, StreamSink<Message>&)>;

  // Runs `answer` in the current term, or forwards the call to the leader as `method`.
  template <typename Request, typename Response>
  grpc::ServerUnaryReactor* Lead(
      grpc::CallbackServerContext* context, const Request* request, Response* response,
      UnaryMethod<Request, Response> method,
      std::type_identity_t<std::function<absl::StatusOr<Response>(ControllerTerm&)>> answer);
  // Runs `answer`, a StatusOr<Response>(const CallContext&), on any controller.
  template <typename Request, typename Response, typename Answer>
  grpc::ServerUnaryReactor* Read(grpc::CallbackServerContext* context, const Request* request,
                                 Response* response, Answer answer);

  // Forwards a call to the leader and returns its reply; NotLeading if there is no leader.
  template <typename Request, typename Response>
  absl::StatusOr<Response> AskLeader(const CallOrigin& origin, const Request& request,
                                     absl::Duration timeout, const runtime::CallContext& call,
                                     UnaryMethod<Request, Response> method);

  // Runs `send` in the current term, or relays the leader's stream.
  template <typename Request, typename Message>
  grpc::ServerWriteReactor<Message>* LeadStream(
      grpc::CallbackServerContext* context, const Request* request,
      StreamMethod<Request, Message> method,
      std::type_identity_t<StreamAnswer<Request, Message>> send);
  template <typename Request, typename Message>
  absl::Status Relay(const CallOrigin& origin, const Request& request, absl::Time deadline,
                     StreamMethod<Request, Message> method, StreamSink<Message>& sink);

  Controller& controller_;
  runtime::ChannelCache& channels_;
  const JobReader reader_;
  const JobSubmitter submitter_;
  const JobServiceOptions options_;
  LeaderCalls leader_calls_;
  runtime::Executor executor_;
  StreamPool streams_;
};

}  // namespace freshet

#endif  // FRESHET_CONTROLLER_API_JOB_SERVICE_H_
