#include "controller/api/job_service.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "base/proto_time.h"
#include "base/status_macros.h"
#include "base/str_cat.h"
#include "controller/api/api_errors.h"
#include "controller/api/job_views.h"
#include "controller/jobs/plan/submission.h"
#include "controller/jobs/plan/team_plan.h"
#include "datastore/ledger.h"
#include "google/protobuf/util/message_differencer.h"
#include "job/job_id.h"
#include "job/job_yaml.h"
#include "services/runtime/channel.h"
#include "services/runtime/status.h"
#include "services/runtime/unary.h"

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
  submission.policy = request.policy();
  return submission;
}

// The job that a request names; "" if it names none.
template <typename Request>
std::string JobOf(const Request& request) {
  if constexpr (requires { request.job_id(); }) {
    return request.job_id();
  } else {
    return "";
  }
}

// How often a blocked stream checks whether its client is still connected.
constexpr absl::Duration kLook = absl::Seconds(1);
constexpr int64_t kEventsPerRead = 500;
constexpr int64_t kLedgerRowsPerRead = 2000;
constexpr size_t kLedgerChunkBytes = size_t{1} << 20;
constexpr absl::Duration kLongestExport = absl::Hours(4);

absl::Status Gone() { return absl::CancelledError("the client is gone"); }

// Gives the max_calls of components of `sent` the values that `known` has been raised to.
void TakeRaisedCalls(const job::v1::JobSpec& known, job::v1::JobSpec& sent) {
  for (auto& [name, component] : *sent.mutable_reward()->mutable_components()) {
    const auto found = known.reward().components().find(name);
    if (found == known.reward().components().end() || !component.has_max_calls()) continue;
    if (found->second.max_calls() > component.max_calls()) {
      component.set_max_calls(found->second.max_calls());
    }
  }
}

// The error `status` of the resume of a team of which the jobs `resumed` are resumed.
absl::Status HalfResumed(const absl::Status& status, const std::vector<std::string>& resumed) {
  if (status.ok() || resumed.empty()) return status;
  std::string ids;
  for (const std::string& id : resumed) ids += (ids.empty() ? "" : ", ") + id;
  absl::Status result(status.code(), StrCat(Message(status), "; resumed of its team: ", ids,
                                            "; repeat the resume"));
  status.ForEachPayload([&result](absl::string_view type, const absl::Cord& payload) {
    result.SetPayload(type, payload);
  });
  return result;
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
  return Lead(context, request, job, &JobService::Stub::Submit,
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
    job::v1::JobSpec sent = checked.spec;
    if (sent.has_reward()) TakeRaisedCalls(known.spec(), sent);
    if (google::protobuf::util::MessageDifferencer::Equals(known.spec(), sent) &&
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
  FRESHET_RETURN_IF_ERROR(CheckTeamPool(records, id, checked.spec));
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
  return Read(
      context, request, reply,
      [this, request](const runtime::CallContext&) -> absl::StatusOr<job::v1::ValidateReply> {
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
  return Lead(
      context, request, job, &JobService::Stub::Pause, [this, request](ControllerTerm& term) {
        return ChangeJob(term, request->job_id(), [request](JobRecord& record, absl::Time now) {
          return WantPaused(record, request->reason(), now);
        });
      });
}

grpc::ServerUnaryReactor* JobServiceImpl::Resume(grpc::CallbackServerContext* context,
                                                 const job::v1::ResumeRequest* request,
                                                 job::v1::Job* job) {
  return Lead(context, request, job, &JobService::Stub::Resume,
              [this, request](ControllerTerm& term) { return ResumeJob(term, *request); });
}

absl::StatusOr<job::v1::Job> JobServiceImpl::ResumeJob(ControllerTerm& term,
                                                       const job::v1::ResumeRequest& request) {
  FRESHET_ASSIGN_OR_RETURN(JobRecord record, term.registry.Get(request.job_id()));
  FRESHET_RETURN_IF_ERROR(RaiseMaxCalls(record, request.max_calls()));
  JobRecord tried = record;  // a job that cannot be resumed leaves its team as it is
  FRESHET_RETURN_IF_ERROR(WantResumed(tried, controller_.ports().clock.Now()));
  std::vector<std::string> resumed;
  if (!record.spec().team().empty() && HasEnded(record.state())) {
    FRESHET_ASSIGN_OR_RETURN(const std::vector<JobRecord> records, term.registry.List());
    FRESHET_ASSIGN_OR_RETURN(const std::vector<std::string> others,
                             FindTeamResumes(records, record));
    resumed.reserve(others.size());
    for (const std::string& other : others) {
      FRESHET_RETURN_IF_ERROR(HalfResumed(ChangeJob(term, other, WantResumed).status(), resumed));
      resumed.push_back(other);
    }
  }
  absl::StatusOr<job::v1::Job> job =
      ChangeJob(term, request.job_id(), [&request](JobRecord& changed, absl::Time now) {
        absl::Status raised = RaiseMaxCalls(changed, request.max_calls());
        return raised.ok() ? WantResumed(changed, now) : raised;
      });
  if (!job.ok()) return HalfResumed(job.status(), resumed);
  return job;
}

grpc::ServerUnaryReactor* JobServiceImpl::Cancel(grpc::CallbackServerContext* context,
                                                 const job::v1::CancelRequest* request,
                                                 job::v1::Job* job) {
  return Lead(
      context, request, job, &JobService::Stub::Cancel, [this, request](ControllerTerm& term) {
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
  return Lead(context, request, reply, &JobService::Stub::Delete,
              [this, request](ControllerTerm& term) { return DeleteJob(term, *request); });
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
  return Lead(
      context, request, reply, &JobService::Stub::ListCheckpoints,
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
          if (checkpoint.has_accuracy()) info->set_accuracy(checkpoint.accuracy());
          info->set_path(checkpoint.path());
        }
        return listed;
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
    return Explained(WatchJob(r, sink), r.job_id());
  });
}

absl::Status JobServiceImpl::WatchJob(const job::v1::WatchRequest& request,
                                      StreamSink<job::v1::Event>& sink) {
  FRESHET_ASSIGN_OR_RETURN(int64_t cursor, ParseCursor(request.cursor()));
  FRESHET_RETURN_IF_ERROR(controller_.registry().Get(request.job_id()).status());
  EventLog& events = controller_.ports().events;
  const std::string stream = EventStream(request.job_id());
  bool ended = false;  // no more events are expected
  while (!sink.ended()) {
    FRESHET_ASSIGN_OR_RETURN(
        const EventPage page,
        events.Read(stream, cursor, kEventsPerRead, ended ? absl::ZeroDuration() : kLook));
    if (page.gap && cursor > 0) {
      return StatusOf(absl::StatusCode::kOutOfRange, "cursor: events after ", cursor,
                      " have expired; watch from the beginning");
    }
    for (const StoredEvent& stored : page.events) {
      FRESHET_ASSIGN_OR_RETURN(const job::v1::Event event, ToEvent(stored));
      if (!sink.Write(event)) return Gone();
      cursor = stored.cursor;
      // The final state is the last event, unless the job is resumed.
      ended = event.has_state() && HasEnded(event.state().state());
    }
    if (!page.events.empty()) continue;
    if (ended) return absl::OkStatus();
    // An ended job gets no more events. Read the remaining ones once more.
    const absl::StatusOr<JobRecord> record = controller_.registry().Get(request.job_id());
    if (record.status().code() == absl::StatusCode::kNotFound) return absl::OkStatus();
    FRESHET_RETURN_IF_ERROR(record.status());
    ended = HasEnded(record->state());
  }
  return Gone();
}

grpc::ServerWriteReactor<job::v1::LedgerChunk>* JobServiceImpl::ReadLedger(
    grpc::CallbackServerContext*, const job::v1::ReadLedgerRequest* request) {
  return streams_.Run<job::v1::LedgerChunk>(
      [this, r = *request](StreamSink<job::v1::LedgerChunk>& sink) {
        return Explained(SendLedger(r, sink), r.job_id());
      });
}

absl::Status JobServiceImpl::SendLedger(const job::v1::ReadLedgerRequest& request,
                                        StreamSink<job::v1::LedgerChunk>& sink) {
  if (request.after_seq() < 0) {
    return InvalidArgument("after_seq: ", request.after_seq(), " is negative");
  }
  FRESHET_RETURN_IF_ERROR(controller_.registry().Get(request.job_id()).status());
  FRESHET_ASSIGN_OR_RETURN(const auto store, controller_.ports().stores.Find(request.job_id()));
  int64_t seq = request.after_seq();
  while (!sink.ended()) {
    FRESHET_ASSIGN_OR_RETURN(const std::vector<LedgerRow> rows,
                             store->ReadLedger(seq, kLedgerRowsPerRead));
    if (rows.empty()) return absl::OkStatus();
    job::v1::LedgerChunk chunk;
    size_t bytes = 0;
    for (const LedgerRow& row : rows) {
      chunk.add_rows(LedgerRowToJson(row));
      bytes += chunk.rows(chunk.rows_size() - 1).size();
      if (bytes < kLedgerChunkBytes) continue;
      if (!sink.Write(chunk)) return Gone();
      chunk.Clear();
      bytes = 0;
    }
    if (chunk.rows_size() > 0 && !sink.Write(chunk)) return Gone();
    seq = rows.back().seq;
  }
  return Gone();
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
                                        std::min(kLongestExport, deadline - absl::Now())));
  const auto reader = (link.stub.get()->*method)(link.context.get(), request);
  LeaderCalls::Call pending(leader_calls_, link.leader, *link.context,
                            [&sink] { return sink.ended(); });
  Message message;
  bool gone = false;
  while (!gone && reader->Read(&message)) gone = !sink.Write(message);
  if (gone) link.context->TryCancel();
  const absl::Status status = runtime::GrpcToStatus(reader->Finish());
  return gone ? Gone() : pending.Answer(status);
}

grpc::ServerWriteReactor<job::v1::LogEntry>* JobServiceImpl::Logs(
    grpc::CallbackServerContext* context, const job::v1::LogsRequest* request) {
  return LeadStream(
      context, request, &JobService::Stub::Logs,
      [this](ControllerTerm& term, const job::v1::LogsRequest& r, absl::Time,
             StreamSink<job::v1::LogEntry>& sink) { return SendLogs(term, r, sink); });
}

absl::Status JobServiceImpl::SendLogs(ControllerTerm& term, const job::v1::LogsRequest& request,
                                      StreamSink<job::v1::LogEntry>& sink) {
  if (request.tail() < 0) return InvalidArgument("tail: ", request.tail(), " is negative");
  if (!request.job_id().empty()) {
    FRESHET_RETURN_IF_ERROR(term.registry.Get(request.job_id()).status());
  }
  WorkerLogs& log = term.hub->log();
  const LogFilter filter{request.job_id(), request.role(), request.worker()};
  const OwnLog& own = controller_.options().own_log;
  log.TakeOwn(own);
  LogPage page = log.Tail(filter, static_cast<size_t>(request.tail()));
  while (true) {
    for (const job::v1::LogEntry& entry : page.entries) {
      if (!sink.Write(entry)) return Gone();
    }
    if (!request.follow()) return absl::OkStatus();
    if (sink.ended()) return Gone();
    if (controller_.Active().get() != &term) return NotLeading(controller_.Leader());
    log.TakeOwn(own);
    page = log.Next(filter, page.position, kLook);
  }
}

grpc::ServerWriteReactor<job::v1::FileChunk>* JobServiceImpl::ExportCheckpoint(
    grpc::CallbackServerContext* context, const job::v1::ExportCheckpointRequest* request) {
  return LeadStream(context, request, &JobService::Stub::ExportCheckpoint,
                    [this](ControllerTerm& term, const job::v1::ExportCheckpointRequest& r,
                           absl::Time deadline, StreamSink<job::v1::FileChunk>& sink) {
                      return SendCheckpoint(term, r, deadline, sink);
                    });
}

absl::Status JobServiceImpl::SendCheckpoint(ControllerTerm& term,
                                            const job::v1::ExportCheckpointRequest& request,
                                            absl::Time deadline,
                                            StreamSink<job::v1::FileChunk>& sink) {
  FRESHET_ASSIGN_OR_RETURN(const JobRecord record, term.registry.Get(request.job_id()));
  FRESHET_ASSIGN_OR_RETURN(const std::string address, TrainerOf(term, record));
  trainer::v1::ExportCheckpointRequest wanted;
  wanted.set_job_id(request.job_id());
  wanted.set_version(request.version());
  if (request.has_generated_after()) wanted.set_generated_after(request.generated_after());
  return controller_.ports().trainers.ExportCheckpoint(
      address, wanted, std::min(kLongestExport, deadline - absl::Now()),
      [&sink](const trainer::v1::CheckpointChunk& chunk) {
        job::v1::FileChunk out;
        out.set_path(chunk.path());
        out.set_data(chunk.data());
        return sink.Write(out) ? absl::OkStatus() : Gone();
      });
}

grpc::ServerUnaryReactor* JobServiceImpl::ListSamples(grpc::CallbackServerContext* context,
                                                      const job::v1::ListSamplesRequest* request,
                                                      job::v1::ListSamplesReply* reply) {
  return Read(context, request, reply,
              [this, request](const runtime::CallContext&) { return reader_.Samples(*request); });
}

}  // namespace freshet
