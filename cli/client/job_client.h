#ifndef FRESHET_CLI_CLIENT_JOB_CLIENT_H_
#define FRESHET_CLI_CLIENT_JOB_CLIENT_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/mutex.h"
#include "cli/client/server_target.h"
#include "freshet/job/v1/job_service.pb.h"

namespace grpc {
class ClientContext;
class Status;
template <typename Message>
class ClientReader;
}  // namespace grpc

namespace freshet {

class ControllerLinks;

// Calls to JobService, each with a deadline. Statuses carry the server's google.rpc details.
// Read-only and idempotent calls are retried on UNAVAILABLE within their deadline; Submit only if
// it has an id. If a controller does not answer, another one is tried; during a leader change a
// call waits a few seconds. Thread-safe.
class JobClient {
 public:
  struct Options {
    absl::Duration call_timeout = absl::Seconds(15);
    // Longer streams are closed; the Follow... callers open a new one.
    absl::Duration stream_timeout = absl::Minutes(10);
    absl::Duration export_timeout = absl::Hours(6);
    // How long calls are retried while no controller leads.
    absl::Duration failover = absl::Seconds(6);
  };

  // Connects lazily. INVALID_ARGUMENT: a bad address or token; NOT_FOUND: an unreadable file of the
  // target.
  static absl::StatusOr<std::unique_ptr<JobClient>> Create(const ServerTarget& target,
                                                           const Options& options);
  static absl::StatusOr<std::unique_ptr<JobClient>> Create(const ServerTarget& target) {
    return Create(target, Options());
  }
  ~JobClient();
  JobClient(const JobClient&) = delete;
  JobClient& operator=(const JobClient&) = delete;

  absl::StatusOr<job::v1::Job> Submit(const job::v1::SubmitRequest& request);
  absl::StatusOr<job::v1::ValidateReply> Validate(const job::v1::ValidateRequest& request);
  absl::StatusOr<job::v1::Job> Get(const std::string& job_id);
  // Reads all pages, at most `limit` jobs.
  absl::StatusOr<std::vector<job::v1::Job>> List(const std::vector<job::v1::JobState>& states,
                                                 size_t limit);
  absl::StatusOr<job::v1::Job> Pause(const std::string& job_id, const std::string& reason);
  // `max_calls`: higher values for reward components, by name.
  absl::StatusOr<job::v1::Job> Resume(const std::string& job_id,
                                      const std::map<std::string, int64_t>& max_calls = {});
  absl::StatusOr<job::v1::Job> Cancel(const std::string& job_id, const std::string& reason);
  // OK: the job is deleted, now or before by this leader. NOT_FOUND: an unknown job.
  absl::Status Delete(const std::string& job_id, bool keep_checkpoints);
  absl::StatusOr<job::v1::ScaleReply> Scale(const job::v1::ScaleRequest& request);
  absl::StatusOr<job::v1::ListCheckpointsReply> ListCheckpoints(const std::string& job_id);
  absl::StatusOr<job::v1::ListSamplesReply> ListSamples(const std::string& job_id, int32_t limit);
  absl::StatusOr<job::v1::Cluster> GetCluster();
  // With its own deadline and without retries.
  absl::StatusOr<job::v1::Cluster> GetCluster(absl::Duration timeout);

  // Streams: `take` receives each message and returns whether to continue. OK if the server ended
  // the stream or `take` stopped it, CANCELLED after CancelStreams().
  absl::Status Watch(const job::v1::WatchRequest& request, absl::Duration timeout,
                     const std::function<bool(const job::v1::Event&)>& take);
  absl::Status Logs(const job::v1::LogsRequest& request,
                    const std::function<bool(const job::v1::LogEntry&)>& take);
  absl::Status ReadLedger(const std::string& job_id,
                          const std::function<absl::Status(const job::v1::LedgerChunk&)>& take);
  absl::Status ExportCheckpoint(const std::string& job_id, int64_t version,
                                const std::function<absl::Status(const job::v1::FileChunk&)>& take);
  // The generated files of steps after `after`.
  absl::Status ExportGenerated(const std::string& job_id, int64_t after,
                               const std::function<absl::Status(const job::v1::FileChunk&)>& take);

  // Cancels running streams and calls, and all later ones. Callable from any thread.
  void CancelStreams() ABSL_LOCKS_EXCLUDED(mu_);

  const ServerTarget& target() const { return target_; }
  const Options& options() const { return options_; }

 private:
  class Call;

  JobClient(ServerTarget target, const Options& options, std::unique_ptr<ControllerLinks> links);
  template <typename Rpc, typename Request, typename Reply>
  absl::StatusOr<Reply> Unary(grpc::Status (Rpc::*method)(grpc::ClientContext*, const Request&,
                                                          Reply*),
                              const Request& request, bool repeatable = true);
  template <typename Rpc, typename Request, typename Message, typename Take>
  absl::Status Stream(std::unique_ptr<grpc::ClientReader<Message>> (Rpc::*method)(
                          grpc::ClientContext*, const Request&),
                      const Request& request, absl::Duration timeout, Take take);
  // Runs `attempt` against a controller, retrying for up to options.failover while `again` returns
  // true for its status.
  struct Stub;
  absl::Status Reach(const std::function<absl::Status(Stub&)>& attempt,
                     const std::function<bool(const absl::Status&)>& again)
      ABSL_LOCKS_EXCLUDED(mu_);
  bool cancelled() const ABSL_LOCKS_EXCLUDED(mu_);

  const ServerTarget target_;
  const Options options_;
  const std::unique_ptr<ControllerLinks> links_;
  mutable Mutex mu_;
  bool cancelled_ ABSL_GUARDED_BY(mu_) = false;
  std::vector<grpc::ClientContext*> running_ ABSL_GUARDED_BY(mu_);
};

// Follows the events of a job from `cursor` until `take` stops it or the job ends. Reconnects with
// backoff after the last event taken; UNAVAILABLE if nothing was reachable for `patience`,
// DEADLINE_EXCEEDED at `deadline`. `lost` is called with the reason whenever the connection breaks.
absl::Status FollowEvents(JobClient& client, const std::string& job_id, std::string cursor,
                          absl::Time deadline, absl::Duration patience,
                          const std::function<bool(const job::v1::Event&)>& take,
                          const std::function<void(const absl::Status&)>& lost);

}  // namespace freshet

#endif  // FRESHET_CLI_CLIENT_JOB_CLIENT_H_
