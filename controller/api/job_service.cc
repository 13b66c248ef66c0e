#include "controller/api/job_service.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/proto_time.h"
#include "base/status_macros.h"
#include "base/str_cat.h"
#include "controller/api/api_errors.h"
#include "controller/api/job_views.h"
#include "controller/jobs/plan/submission.h"
#include "google/protobuf/util/message_differencer.h"
#include "job/job_yaml.h"
#include "services/runtime/channel.h"

namespace freshet {
namespace {

using job::v1::JobService;

constexpr int32_t kMaxPriority = 100;

bool WorksOn(const Member& member, const std::string& job) {
  return std::any_of(member.status.assignments().begin(), member.status.assignments().end(),
                     [&job](const cluster::v1::AssignmentStatus& assignment) {
                       return JobOfAssignment(assignment.assignment_id()) == job;
                     });
}

template <typename Request>
Submission ToSubmission(const Request& request) {
  Submission submission;
  submission.yaml = request.yaml();
  submission.spec = request.has_spec() ? &request.spec() : nullptr;
  submission.file_name = request.file_name();
  submission.overrides.assign(request.overrides().begin(), request.overrides().end());
  return submission;
}

}  // namespace

JobServiceImpl::JobServiceImpl(Controller& controller, runtime::ChannelCache& channels,
                               JobServiceOptions options)
    : controller_(controller),
      channels_(channels),
      reader_(controller),
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
absl::StatusOr<Response> JobServiceImpl::AskLeader(
    const CallOrigin& origin, const Request& request, absl::Duration timeout,
    const runtime::CallContext& call,
    grpc::Status (JobService::Stub::*method)(grpc::ClientContext*, const Request&, Response*)) {
  const Leadership::View leader = controller_.Leader();
  if (!MayPassOn(origin, leader)) return NotLeading(leader);
  FRESHET_ASSIGN_OR_RETURN(const auto channel,
                           channels_.Get(leader.address, cluster::v1::ROLE_CONTROLLER));
  const auto stub = JobService::NewStub(channel);
  const auto context = ContextToLeader(origin, timeout);
  LeaderCalls::Call pending(leader_calls_, leader, *context, call.cancelled);
  Response response;
  FRESHET_RETURN_IF_ERROR(pending.Answer(
      runtime::GrpcToStatus((stub.get()->*method)(context.get(), request, &response))));
  return response;
}

template <typename Request, typename Response>
grpc::ServerUnaryReactor* JobServiceImpl::Lead(
    grpc::CallbackServerContext* context, const Request* request, Response* response,
    grpc::Status (JobService::Stub::*method)(grpc::ClientContext*, const Request&, Response*),
    const std::string& job, Answer<Response> answer) {
  return runtime::RunUnary(
      executor_, context, request, response,
      [this, method, job, answer = std::move(answer), origin = OriginOf(*context)](
          const Request& r, const runtime::CallContext& call) -> absl::StatusOr<Response> {
        if (const auto term = controller_.Active()) {
          absl::StatusOr<Response> answered = answer(*term);
          if (!answered.ok()) return Led(answered.status(), job, controller_.Leader());
          return answered;
        }
        return AskLeader(origin, r,
                         std::min(options_.forward_deadline, call.deadline - absl::Now()), call,
                         method);
      });
}

template <typename Request, typename Response>
grpc::ServerUnaryReactor* JobServiceImpl::Read(grpc::CallbackServerContext* context,
                                               const Request* request, Response* response,
                                               const std::string& job,
                                               std::function<absl::StatusOr<Response>()> answer) {
  return runtime::RunUnary(
      executor_, context, request, response,
      [job, answer = std::move(answer)](const Request&,
                                        const runtime::CallContext&) -> absl::StatusOr<Response> {
        absl::StatusOr<Response> answered = answer();
        if (!answered.ok()) return Explained(answered.status(), job);
        return answered;
      });
}

grpc::ServerUnaryReactor* JobServiceImpl::Submit(grpc::CallbackServerContext* context,
                                                 const job::v1::SubmitRequest* request,
                                                 job::v1::Job* job) {
  return Lead<job::v1::SubmitRequest, job::v1::Job>(
      context, request, job, &JobService::Stub::Submit, request->job_id(),
      [this, request](ControllerTerm& term) { return SubmitJob(term, *request); });
}

absl::StatusOr<job::v1::Job> JobServiceImpl::SubmitJob(ControllerTerm& term,
                                                       const job::v1::SubmitRequest& request) {
  if (request.priority() < -kMaxPriority || request.priority() > kMaxPriority) {
    return BadField("priority", StrCat(request.priority(), " is not within ", -kMaxPriority,
                                       " and ", kMaxPriority));
  }
  if (!request.job_id().empty()) {
    const absl::Status valid = ValidateJobId(request.job_id());
    if (!valid.ok()) return BadField("job_id", Message(valid));
  }
  const CheckedSubmission checked =
      CheckSubmission(ToSubmission(request), controller_.options().roots);
  if (!checked.errors.empty()) return InvalidJob(checked.errors);
  const std::string id = request.job_id().empty()
                             ? MakeJobId(checked.spec.name(), options_.random())
                             : request.job_id();
  const auto same = [&]() -> absl::StatusOr<job::v1::Job> {
    FRESHET_ASSIGN_OR_RETURN(const JobRecord known, term.registry.Get(id));
    if (google::protobuf::util::MessageDifferencer::Equals(known.spec(), checked.spec) &&
        known.priority() == request.priority()) {
      return ToDetailedJob(known, nullptr);
    }
    return StatusOf(absl::StatusCode::kAlreadyExists, "job_id: ", id,
                    " belongs to a job with another spec; choose another id");
  };
  absl::StatusOr<job::v1::Job> known = same();
  if (known.status().code() != absl::StatusCode::kNotFound) return known;
  FRESHET_ASSIGN_OR_RETURN(const std::vector<JobRecord> records, term.registry.List());
  const auto open = std::count_if(records.begin(), records.end(), [](const JobRecord& record) {
    return !HasEnded(record.state());
  });
  if (static_cast<size_t>(open) >= options_.max_jobs) {
    return ResourceExhausted(open, " jobs are active, which is the maximum; try again later");
  }
  const JobRecord record =
      NewJobRecord(id, checked.spec, request.priority(), controller_.ports().clock.Now());
  const absl::Status created = term.registry.Create(record);
  if (created.code() == absl::StatusCode::kAlreadyExists) return same();
  FRESHET_RETURN_IF_ERROR(created);
  term.manager.LookAtQueue();
  return ToDetailedJob(record, nullptr);
}

grpc::ServerUnaryReactor* JobServiceImpl::Validate(grpc::CallbackServerContext* context,
                                                   const job::v1::ValidateRequest* request,
                                                   job::v1::ValidateReply* reply) {
  return Read<job::v1::ValidateRequest, job::v1::ValidateReply>(
      context, request, reply, "", [this, request]() -> absl::StatusOr<job::v1::ValidateReply> {
        CheckedSubmission checked =
            CheckSubmission(ToSubmission(*request), controller_.options().roots);
        if (!checked.errors.empty()) return InvalidJob(checked.errors);
        job::v1::ValidateReply answer;
        answer.set_yaml(WriteJobYaml(checked.spec));
        *answer.mutable_spec() = std::move(checked.spec);
        return answer;
      });
}

grpc::ServerUnaryReactor* JobServiceImpl::Get(grpc::CallbackServerContext* context,
                                              const job::v1::GetRequest* request,
                                              job::v1::Job* job) {
  return runtime::RunUnary(
      executor_, context, request, job,
      [this, origin = OriginOf(*context)](
          const job::v1::GetRequest& r,
          const runtime::CallContext& call) -> absl::StatusOr<job::v1::Job> {
        if (controller_.Active() == nullptr && MayPassOn(origin, controller_.Leader())) {
          // Only the leader knows what the job waits for. Without it, the rest is returned.
          absl::StatusOr<job::v1::Job> live = AskLeader(
              origin, r, std::min(options_.live_deadline, (call.deadline - absl::Now()) / 2), call,
              &JobService::Stub::Get);
          if (live.ok()) return live;
        }
        absl::StatusOr<job::v1::Job> found = reader_.Get(r.job_id());
        if (!found.ok()) return Explained(found.status(), r.job_id());
        return found;
      });
}

grpc::ServerUnaryReactor* JobServiceImpl::List(grpc::CallbackServerContext* context,
                                               const job::v1::ListRequest* request,
                                               job::v1::ListReply* reply) {
  return Read<job::v1::ListRequest, job::v1::ListReply>(
      context, request, reply, "", [this, request] { return reader_.List(*request); });
}

absl::StatusOr<job::v1::Job> JobServiceImpl::ChangeJob(
    ControllerTerm& term, const std::string& id,
    const std::function<absl::Status(JobRecord&, absl::Time)>& change) {
  FRESHET_ASSIGN_OR_RETURN(const JobRecord record, term.registry.Change(id, [&](JobRecord& r) {
    return change(r, controller_.ports().clock.Now());
  }));
  term.manager.LookAtQueue();
  return ToDetailedJob(record, nullptr);
}

grpc::ServerUnaryReactor* JobServiceImpl::Pause(grpc::CallbackServerContext* context,
                                                const job::v1::PauseRequest* request,
                                                job::v1::Job* job) {
  return Lead<job::v1::PauseRequest, job::v1::Job>(
      context, request, job, &JobService::Stub::Pause, request->job_id(),
      [this, request](ControllerTerm& term) {
        return ChangeJob(term, request->job_id(), [request](JobRecord& record, absl::Time now) {
          return WantPaused(record, request->reason(), now);
        });
      });
}

grpc::ServerUnaryReactor* JobServiceImpl::Resume(grpc::CallbackServerContext* context,
                                                 const job::v1::ResumeRequest* request,
                                                 job::v1::Job* job) {
  return Lead<job::v1::ResumeRequest, job::v1::Job>(
      context, request, job, &JobService::Stub::Resume, request->job_id(),
      [this, request](ControllerTerm& term) {
        return ChangeJob(term, request->job_id(), WantResumed);
      });
}

grpc::ServerUnaryReactor* JobServiceImpl::Cancel(grpc::CallbackServerContext* context,
                                                 const job::v1::CancelRequest* request,
                                                 job::v1::Job* job) {
  return Lead<job::v1::CancelRequest, job::v1::Job>(
      context, request, job, &JobService::Stub::Cancel, request->job_id(),
      [this, request](ControllerTerm& term) {
        return ChangeJob(
            term, request->job_id(), [this, request](JobRecord& record, absl::Time now) {
              FRESHET_RETURN_IF_ERROR(WantCancelled(record, request->reason(), now));
              if (HasEnded(record.state()) && !record.has_expires()) {
                *record.mutable_expires() = ToTimestamp(now + controller_.options().retention.keep);
              }
              return absl::OkStatus();
            });
      });
}

absl::StatusOr<std::string> JobServiceImpl::TrainerOf(ControllerTerm& term,
                                                      const JobRecord& record) const {
  if (record.trainer().empty()) {
    return NotFound("job ", record.id(), " has not run yet: it has no checkpoints");
  }
  for (const Member& member : term.hub->Workers()) {
    if (member.record.name() == record.trainer() && !member.record.lost()) {
      return member.record.address();
    }
  }
  return StatusOf(absl::StatusCode::kUnavailable, "trainer ", record.trainer(),
                  ", which has the files of job ", record.id(), ", is not there");
}

absl::StatusOr<job::v1::DeleteReply> JobServiceImpl::DeleteJob(
    ControllerTerm& term, const job::v1::DeleteRequest& request) {
  const absl::StatusOr<JobRecord> record = term.registry.Get(request.job_id());
  if (record.status().code() == absl::StatusCode::kNotFound) return job::v1::DeleteReply();
  FRESHET_RETURN_IF_ERROR(record.status());
  JobRecord ended = *record;
  FRESHET_RETURN_IF_ERROR(WantDeleted(ended));
  // Workers that are still running could write data that nobody would remove.
  if (term.manager.Driver(record->id()) != nullptr) {
    return StatusOf(absl::StatusCode::kUnavailable, "the workers of job ", record->id(),
                    " are still stopping; try again");
  }
  for (const Member& member : term.hub->Workers()) {
    if (member.record.lost() || !WorksOn(member, record->id())) continue;
    return StatusOf(absl::StatusCode::kUnavailable, RoleName(member.record.role()), " ",
                    member.record.name(), " is still stopping its work on job ", record->id(),
                    "; try again");
  }
  std::string trainer_address;
  if (!request.keep_checkpoints() && !record->trainer().empty()) {
    const absl::StatusOr<std::string> address = TrainerOf(term, *record);
    if (!address.ok()) {
      return StatusOf(absl::StatusCode::kUnavailable, Message(address.status()),
                      "; try again when it is, or keep the checkpoints");
    }
    trainer_address = *address;
  }
  FRESHET_ASSIGN_OR_RETURN(const JobRecord marked, term.registry.Change(record->id(), WantDeleted));
  if (!trainer_address.empty()) {
    FRESHET_RETURN_IF_ERROR(controller_.ports().trainers.DeleteJobFiles(
        trainer_address, record->id(), controller_.options().timing.call_deadline));
  }
  FRESHET_RETURN_IF_ERROR(term.registry.Delete(
      marked, [this](const JobRemoval& job) { return controller_.ports().stores.Delete(job); }));
  return job::v1::DeleteReply();
}

grpc::ServerUnaryReactor* JobServiceImpl::Delete(grpc::CallbackServerContext* context,
                                                 const job::v1::DeleteRequest* request,
                                                 job::v1::DeleteReply* reply) {
  return Lead<job::v1::DeleteRequest, job::v1::DeleteReply>(
      context, request, reply, &JobService::Stub::Delete, request->job_id(),
      [this, request](ControllerTerm& term) { return DeleteJob(term, *request); });
}

grpc::ServerUnaryReactor* JobServiceImpl::Scale(grpc::CallbackServerContext* context,
                                                const job::v1::ScaleRequest* request,
                                                job::v1::ScaleReply* reply) {
  return Lead<job::v1::ScaleRequest, job::v1::ScaleReply>(
      context, request, reply, &JobService::Stub::Scale, "",
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
  return Lead<job::v1::ListCheckpointsRequest, job::v1::ListCheckpointsReply>(
      context, request, reply, &JobService::Stub::ListCheckpoints, request->job_id(),
      [this, request](ControllerTerm& term) -> absl::StatusOr<job::v1::ListCheckpointsReply> {
        FRESHET_ASSIGN_OR_RETURN(const JobRecord record, term.registry.Get(request->job_id()));
        if (record.trainer().empty()) return job::v1::ListCheckpointsReply();
        FRESHET_ASSIGN_OR_RETURN(const std::string address, TrainerOf(term, record));
        FRESHET_ASSIGN_OR_RETURN(
            const trainer::v1::ListCheckpointsReply found,
            controller_.ports().trainers.ListCheckpoints(
                address, record.id(), controller_.options().timing.call_deadline));
        job::v1::ListCheckpointsReply listed;
        for (const trainer::v1::CheckpointInfo& checkpoint : found.checkpoints()) {
          job::v1::CheckpointInfo* info = listed.add_checkpoints();
          info->set_lineage(checkpoint.lineage());
          info->set_version(checkpoint.version());
          info->set_size_bytes(checkpoint.size_bytes());
          info->set_manifest_sha256(checkpoint.manifest_sha256());
          info->set_path(checkpoint.path());
        }
        return listed;
      });
}

grpc::ServerUnaryReactor* JobServiceImpl::GetCluster(grpc::CallbackServerContext* context,
                                                     const job::v1::GetClusterRequest* request,
                                                     job::v1::Cluster* reply) {
  return Lead<job::v1::GetClusterRequest, job::v1::Cluster>(
      context, request, reply, &JobService::Stub::GetCluster, "",
      [this](ControllerTerm& term) { return reader_.Cluster(term); });
}

}  // namespace freshet
