#include "cli/client/job_client.h"

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>
#include <grpcpp/support/sync_stream.h>

#include <algorithm>
#include <thread>
#include <utility>

#include "absl/time/clock.h"
#include "base/backoff.h"
#include "base/status_macros.h"
#include "base/str_cat.h"
#include "cli/client/controller_links.h"
#include "freshet/job/v1/job_service.grpc.pb.h"
#include "services/runtime/channel.h"
#include "services/runtime/status.h"

namespace freshet {

using job::v1::Job;
using job::v1::JobService;

struct JobClient::Stub {
  std::unique_ptr<JobService::Stub> rpc;
};

// One running call with a deadline, registered with CancelStreams.
class JobClient::Call {
 public:
  Call(JobClient& client, absl::Duration timeout) : client_(client) {
    runtime::SetDeadline(context_, timeout);
    const MutexLock lock(client_.mu_);
    client_.running_.push_back(&context_);
    if (client_.cancelled_) context_.TryCancel();
  }
  ~Call() {
    const MutexLock lock(client_.mu_);
    client_.running_.erase(std::find(client_.running_.begin(), client_.running_.end(), &context_));
  }
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;
  grpc::ClientContext& context() { return context_; }

 private:
  JobClient& client_;
  grpc::ClientContext context_;
};

namespace {

// A request about one job.
template <typename Request>
Request RequestFor(const std::string& job_id) {
  Request request;
  request.set_job_id(job_id);
  return request;
}

constexpr char kService[] = "freshet.job.v1.JobService";
constexpr int32_t kPageSize = 500;

std::vector<std::string> IdempotentMethods() {
  std::vector<std::string> methods;
  for (const char* method : {"Validate", "Get", "List", "Pause", "Resume", "Cancel", "Delete",
                             "Scale", "ListCheckpoints", "ListSamples", "GetCluster"}) {
    methods.push_back(StrCat(kService, "/", method));
  }
  return methods;
}

}  // namespace

JobClient::JobClient(ServerTarget target, const Options& options,
                     std::unique_ptr<ControllerLinks> links)
    : target_(std::move(target)), options_(options), links_(std::move(links)) {}

JobClient::~JobClient() = default;

absl::StatusOr<std::unique_ptr<JobClient>> JobClient::Create(const ServerTarget& target,
                                                             const Options& options) {
  runtime::ChannelOptions channel_options;
  channel_options.tls.files.ca = target.ca;
  channel_options.tls.files.cert = target.cert;
  channel_options.tls.files.key = target.key;
  channel_options.cluster_token_file = target.cluster_token_file;
  if (target.cluster_token_file.empty()) {
    FRESHET_ASSIGN_OR_RETURN(channel_options.bearer_token,
                             runtime::ReadBearerToken(target.token_file, "FRESHET_TOKEN"));
  }
  channel_options.idempotent_methods = IdempotentMethods();
  FRESHET_ASSIGN_OR_RETURN(
      std::unique_ptr<ControllerLinks> links,
      ControllerLinks::Create(SplitAddresses(target.address), channel_options));
  return std::unique_ptr<JobClient>(new JobClient(target, options, std::move(links)));
}

absl::Status JobClient::Reach(const std::function<absl::Status(Stub&)>& attempt,
                              const std::function<bool(const absl::Status&)>& again) {
  Backoff backoff({.initial = absl::Milliseconds(100), .max = absl::Seconds(1)});
  const absl::Time give_up = absl::Now() + options_.failover;
  while (true) {
    const ControllerLinks::Link link = links_->Choose();
    Stub stub{JobService::NewStub(link.channel)};
    absl::Status status = attempt(stub);
    links_->Report(link, status);
    if (!again(status) || absl::Now() >= give_up || cancelled()) return status;
    std::this_thread::sleep_for(absl::ToChronoMilliseconds(backoff.Next()));
  }
}

bool JobClient::cancelled() const {
  const MutexLock lock(mu_);
  return cancelled_;
}

template <typename Rpc, typename Request, typename Reply>
absl::StatusOr<Reply> JobClient::Unary(grpc::Status (Rpc::*method)(grpc::ClientContext*,
                                                                   const Request&, Reply*),
                                       const Request& request, bool repeatable) {
  Reply reply;
  const auto attempt = [&](Stub& stub) {
    Call call(*this, options_.call_timeout);
    return runtime::GrpcToStatus(((*stub.rpc).*method)(&call.context(), request, &reply));
  };
  FRESHET_RETURN_IF_ERROR(Reach(attempt, [&](const absl::Status& status) {
    return links_->MayTryAgain(status, repeatable);
  }));
  return reply;
}

template <typename Rpc, typename Request, typename Message, typename Take>
absl::Status JobClient::Stream(std::unique_ptr<grpc::ClientReader<Message>> (Rpc::*method)(
                                   grpc::ClientContext*, const Request&),
                               const Request& request, absl::Duration timeout, Take take) {
  absl::Status taken = absl::OkStatus();
  bool any = false;  // if true, only the caller can resume
  const auto attempt = [&](Stub& stub) -> absl::Status {
    Call call(*this, timeout);
    const auto reader = ((*stub.rpc).*method)(&call.context(), request);
    Message message;
    bool stopped = false;
    while (!stopped && reader->Read(&message)) {
      any = true;
      if constexpr (std::is_same_v<decltype(take(message)), bool>) {
        stopped = !take(message);
      } else {
        taken = take(message);
        stopped = !taken.ok();
      }
    }
    if (!stopped) return runtime::GrpcToStatus(reader->Finish());
    call.context().TryCancel();
    reader->Finish();
    return absl::OkStatus();
  };
  const absl::Status status = Reach(attempt, [&](const absl::Status& failed) {
    return !any && links_->MayTryAgain(failed, /*repeatable=*/true);
  });
  return taken.ok() ? status : taken;
}

absl::StatusOr<Job> JobClient::Submit(const job::v1::SubmitRequest& request) {
  Backoff backoff({.initial = absl::Milliseconds(100), .max = absl::Seconds(1)});
  constexpr int kAttempts = 4;
  for (int attempt = 1;; ++attempt) {
    absl::StatusOr<Job> job = Unary(&JobService::Stub::Submit, request,
                                    /*repeatable=*/!request.job_id().empty());
    const bool again = absl::IsUnavailable(job.status()) && !request.job_id().empty();
    if (!again || attempt == kAttempts) return job;
    std::this_thread::sleep_for(absl::ToChronoMilliseconds(backoff.Next()));
  }
}

absl::StatusOr<job::v1::ValidateReply> JobClient::Validate(
    const job::v1::ValidateRequest& request) {
  return Unary(&JobService::Stub::Validate, request);
}

absl::StatusOr<Job> JobClient::Get(const std::string& job_id) {
  return Unary(&JobService::Stub::Get, RequestFor<job::v1::GetRequest>(job_id));
}

absl::StatusOr<std::vector<Job>> JobClient::List(const std::vector<job::v1::JobState>& states,
                                                 size_t limit) {
  job::v1::ListRequest request;
  for (const job::v1::JobState state : states) request.add_states(state);
  request.set_page_size(static_cast<int32_t>(std::min<size_t>(limit, kPageSize)));
  std::vector<Job> jobs;
  while (jobs.size() < limit) {
    FRESHET_ASSIGN_OR_RETURN(job::v1::ListReply reply, Unary(&JobService::Stub::List, request));
    for (Job& job : *reply.mutable_jobs()) {
      if (jobs.size() < limit) jobs.push_back(std::move(job));
    }
    if (reply.next_page_token().empty() || reply.jobs().empty()) break;
    request.set_page_token(reply.next_page_token());
  }
  return jobs;
}

absl::StatusOr<Job> JobClient::Pause(const std::string& job_id, const std::string& reason) {
  auto request = RequestFor<job::v1::PauseRequest>(job_id);
  request.set_reason(reason);
  return Unary(&JobService::Stub::Pause, request);
}

absl::StatusOr<Job> JobClient::Resume(const std::string& job_id,
                                      const std::map<std::string, int64_t>& max_calls) {
  auto request = RequestFor<job::v1::ResumeRequest>(job_id);
  request.mutable_max_calls()->insert(max_calls.begin(), max_calls.end());
  return Unary(&JobService::Stub::Resume, request);
}

absl::StatusOr<Job> JobClient::Cancel(const std::string& job_id, const std::string& reason) {
  auto request = RequestFor<job::v1::CancelRequest>(job_id);
  request.set_reason(reason);
  return Unary(&JobService::Stub::Cancel, request);
}

absl::Status JobClient::Delete(const std::string& job_id, bool keep_checkpoints) {
  const absl::StatusOr<Job> job = Get(job_id);
  if (!job.ok() && !absl::IsNotFound(job.status())) return job.status();
  auto request = RequestFor<job::v1::DeleteRequest>(job_id);
  request.set_keep_checkpoints(keep_checkpoints);
  const absl::Status status = Unary(&JobService::Stub::Delete, request).status();
  // A try whose answer was lost may have deleted it.
  return job.ok() && absl::IsNotFound(status) ? absl::OkStatus() : status;
}

absl::StatusOr<job::v1::ScaleReply> JobClient::Scale(const job::v1::ScaleRequest& request) {
  return Unary(&JobService::Stub::Scale, request);
}

absl::StatusOr<job::v1::ListCheckpointsReply> JobClient::ListCheckpoints(
    const std::string& job_id) {
  return Unary(&JobService::Stub::ListCheckpoints,
               RequestFor<job::v1::ListCheckpointsRequest>(job_id));
}

absl::StatusOr<job::v1::ListSamplesReply> JobClient::ListSamples(const std::string& job_id,
                                                                 int32_t limit) {
  auto request = RequestFor<job::v1::ListSamplesRequest>(job_id);
  request.set_limit(limit);
  return Unary(&JobService::Stub::ListSamples, request);
}

absl::StatusOr<job::v1::Cluster> JobClient::GetCluster() {
  return Unary(&JobService::Stub::GetCluster, job::v1::GetClusterRequest());
}

absl::StatusOr<job::v1::Cluster> JobClient::GetCluster(absl::Duration timeout) {
  const ControllerLinks::Link link = links_->Choose();
  Call call(*this, timeout);
  job::v1::Cluster cluster;
  const absl::Status status = runtime::GrpcToStatus(
      JobService::NewStub(link.channel)
          ->GetCluster(&call.context(), job::v1::GetClusterRequest(), &cluster));
  links_->Report(link, status);
  if (!status.ok()) return status;
  return cluster;
}

absl::Status JobClient::Watch(const job::v1::WatchRequest& request, absl::Duration timeout,
                              const std::function<bool(const job::v1::Event&)>& take) {
  return Stream(&JobService::Stub::Watch, request, std::min(timeout, options_.stream_timeout),
                take);
}

absl::Status JobClient::Logs(const job::v1::LogsRequest& request,
                             const std::function<bool(const job::v1::LogEntry&)>& take) {
  return Stream(&JobService::Stub::Logs, request,
                request.follow() ? options_.stream_timeout : options_.call_timeout * 2, take);
}

absl::Status JobClient::ReadLedger(
    const std::string& job_id,
    const std::function<absl::Status(const job::v1::LedgerChunk&)>& take) {
  return Stream(&JobService::Stub::ReadLedger, RequestFor<job::v1::ReadLedgerRequest>(job_id),
                options_.export_timeout, take);
}

absl::Status JobClient::ExportCheckpoint(
    const std::string& job_id, int64_t version,
    const std::function<absl::Status(const job::v1::FileChunk&)>& take) {
  auto request = RequestFor<job::v1::ExportCheckpointRequest>(job_id);
  request.set_version(version);
  return Stream(&JobService::Stub::ExportCheckpoint, request, options_.export_timeout, take);
}

absl::Status JobClient::ExportGenerated(
    const std::string& job_id, int64_t after,
    const std::function<absl::Status(const job::v1::FileChunk&)>& take) {
  auto request = RequestFor<job::v1::ExportCheckpointRequest>(job_id);
  request.set_generated_after(after);
  return Stream(&JobService::Stub::ExportCheckpoint, request, options_.export_timeout, take);
}

void JobClient::CancelStreams() {
  const MutexLock lock(mu_);
  cancelled_ = true;
  for (grpc::ClientContext* context : running_) context->TryCancel();
}

absl::Status FollowEvents(JobClient& client, const std::string& job_id, std::string cursor,
                          absl::Time deadline, absl::Duration patience,
                          const std::function<bool(const job::v1::Event&)>& take,
                          const std::function<void(const absl::Status&)>& lost) {
  Backoff backoff({.initial = absl::Milliseconds(100), .max = absl::Seconds(2)});
  absl::Time give_up = absl::Now() + patience;
  bool stopped = false;
  while (true) {
    const absl::Duration left = deadline - absl::Now();
    if (left <= absl::ZeroDuration()) {
      return absl::DeadlineExceededError("the job has not ended in time");
    }
    job::v1::WatchRequest request;
    request.set_job_id(job_id);
    request.set_cursor(cursor);
    bool any = false;
    absl::Status status = client.Watch(request, left, [&](const job::v1::Event& event) {
      any = true;
      cursor = event.cursor();
      stopped = !take(event);
      return !stopped;
    });
    if (status.ok() || stopped) return absl::OkStatus();
    if (any || absl::IsDeadlineExceeded(status)) {
      give_up = absl::Now() + patience;
      backoff.Reset();
    }
    if (absl::IsDeadlineExceeded(status)) continue;
    // A proxy or a dying server turns a cut stream into INTERNAL or UNKNOWN.
    const bool broken = absl::IsUnavailable(status) || absl::IsInternal(status) ||
                        absl::IsUnknown(status) || absl::IsAborted(status);
    if (!broken || absl::Now() >= give_up) return status;
    lost(status);
    std::this_thread::sleep_for(absl::ToChronoMilliseconds(
        std::min(backoff.Next(), std::max(deadline - absl::Now(), absl::ZeroDuration()))));
  }
}

}  // namespace freshet
