#ifndef FRESHET_CONTROLLER_API_JOB_SERVICE_H_
#define FRESHET_CONTROLLER_API_JOB_SERVICE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "controller/api/job_reader.h"
#include "controller/api/leader_call.h"
#include "controller/api/stream_pool.h"
#include "controller/jobs/driver/controller.h"
#include "freshet/job/v1/job_service.grpc.pb.h"
#include "services/runtime/executor.h"
#include "services/runtime/unary.h"
#include "services/worker/channel_cache.h"

namespace freshet {

struct JobServiceOptions {
  size_t max_jobs = 1000;  // that have not ended
  int unary_threads = 8;
  int max_streams = 64;
  absl::Duration forward_deadline = absl::Seconds(30);  // where the caller has none
  // How long a standby waits for what only the leader knows of a job, before it shows the rest.
  absl::Duration live_deadline = absl::Seconds(2);
  std::function<uint64_t()> random;  // for ids that the server chooses
};

// JobService over gRPC. Any controller answers what is in the record store and the event log (List,
// Validate, Watch, ListSamples, ReadLedger, and Get where the leader does not answer); the rest is
// the leader's, to whom a standby passes calls on, streams included. Thread-safe.
class JobServiceImpl final : public job::v1::JobService::CallbackService {
 public:
  // Both must outlive the service; `channels` lead to other controllers.
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

  // Ends the threads; the server is down.
  void Stop();

  // Calls that wait for a thread, and how many may.
  static constexpr size_t kMaxWaiting = 256;
  size_t queued_calls() const { return executor_.queued(); }
  // Streams that are open; of options.max_streams.
  int open_streams() const { return streams_.open(); }

 private:
  template <typename Response>
  using Answer = std::function<absl::StatusOr<Response>(ControllerTerm&)>;

  // Runs `answer` in the term under way, or asks the leader by `method`.
  template <typename Request, typename Response>
  grpc::ServerUnaryReactor* Lead(grpc::CallbackServerContext* context, const Request* request,
                                 Response* response,
                                 grpc::Status (job::v1::JobService::Stub::*method)(
                                     grpc::ClientContext*, const Request&, Response*),
                                 const std::string& job, Answer<Response> answer);
  // Runs `answer` on any controller.
  template <typename Request, typename Response>
  grpc::ServerUnaryReactor* Read(grpc::CallbackServerContext* context, const Request* request,
                                 Response* response, const std::string& job,
                                 std::function<absl::StatusOr<Response>()> answer);

  absl::StatusOr<job::v1::Job> SubmitJob(ControllerTerm& term,
                                         const job::v1::SubmitRequest& request);
  // A change of the record that the user asks for.
  absl::StatusOr<job::v1::Job> ChangeJob(
      ControllerTerm& term, const std::string& id,
      const std::function<absl::Status(JobRecord&, absl::Time)>& change);
  absl::StatusOr<job::v1::DeleteReply> DeleteJob(ControllerTerm& term,
                                                 const job::v1::DeleteRequest& request);
  // Address of the trainer that has the job's files. UNAVAILABLE when it is not there.
  absl::StatusOr<std::string> TrainerOf(ControllerTerm& term, const JobRecord& record) const;
  // What the leader says to a call that a standby passes on; NotLeading where there is none.
  template <typename Request, typename Response>
  absl::StatusOr<Response> AskLeader(const CallOrigin& origin, const Request& request,
                                     absl::Duration timeout, const runtime::CallContext& call,
                                     grpc::Status (job::v1::JobService::Stub::*method)(
                                         grpc::ClientContext*, const Request&, Response*));

  // Streams (job_streams.cc).
  absl::Status WatchJob(const job::v1::WatchRequest& request, StreamSink<job::v1::Event>& sink);
  absl::Status SendLedger(const job::v1::ReadLedgerRequest& request,
                          StreamSink<job::v1::LedgerChunk>& sink);
  absl::Status SendLogs(ControllerTerm& term, const job::v1::LogsRequest& request,
                        StreamSink<job::v1::LogEntry>& sink);
  absl::Status SendCheckpoint(ControllerTerm& term, const job::v1::ExportCheckpointRequest& request,
                              absl::Time deadline, StreamSink<job::v1::FileChunk>& sink);
  // Runs `send` in the term under way, or passes on what the leader sends.
  template <typename Request, typename Message>
  grpc::ServerWriteReactor<Message>* LeadStream(
      grpc::CallbackServerContext* context, const Request* request,
      std::unique_ptr<grpc::ClientReader<Message>> (job::v1::JobService::Stub::*method)(
          grpc::ClientContext*, const Request&),
      std::function<absl::Status(ControllerTerm&, const Request&, absl::Time deadline,
                                 StreamSink<Message>&)>
          send);
  template <typename Request, typename Message>
  absl::Status Relay(const CallOrigin& origin, const Request& request, absl::Time deadline,
                     std::unique_ptr<grpc::ClientReader<Message>> (
                         job::v1::JobService::Stub::*method)(grpc::ClientContext*, const Request&),
                     StreamSink<Message>& sink);

  Controller& controller_;
  runtime::ChannelCache& channels_;
  const JobReader reader_;
  const JobServiceOptions options_;
  LeaderCalls leader_calls_;
  runtime::Executor executor_;
  StreamPool streams_;
};

}  // namespace freshet

#endif  // FRESHET_CONTROLLER_API_JOB_SERVICE_H_
