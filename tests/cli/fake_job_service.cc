#include "tests/cli/fake_job_service.h"

#include <utility>

#include "base/log.h"
#include "base/str_cat.h"
#include "job/job_parser.h"
#include "job/job_yaml.h"
#include "services/runtime/error_details.h"
#include "services/runtime/status.h"

namespace freshet {

using job::v1::Event;
using job::v1::Job;
using runtime::StatusToGrpc;

namespace {

absl::Status NoSuchJob(const std::string& id) {
  return NotFound("no job \"", id, "\"; freshet list names those there are");
}

absl::Status ErrorsToStatus(const std::vector<ConfigError>& errors) {
  runtime::ErrorDetails details;
  details.reason = "INVALID_JOB";
  for (const ConfigError& error : errors)
    details.violations.push_back({error.path, FormatConfigError(error)});
  return runtime::WithDetails(InvalidArgument(errors.size(), " errors"), details);
}

}  // namespace

absl::Status FakeJobService::Begin(const std::string& method) {
  ++calls_[method];
  if (failures_.empty()) return absl::OkStatus();
  if (!failures_.front().first.empty() && failures_.front().first != method) {
    return absl::OkStatus();
  }
  absl::Status status = std::move(failures_.front().second);
  failures_.pop_front();
  return status;
}

void FakeJobService::AddJob(const Job& job, const std::vector<Event>& events) {
  const MutexLock lock(mu_);
  Entry& entry = jobs_[job.id()];
  entry = {job, events};
  if (entry.job.recent_events().empty() && !events.empty()) {
    *entry.job.add_recent_events() = events.back();
  }
}

void FakeJobService::FailNext(const std::string& method, absl::Status status) {
  const MutexLock lock(mu_);
  failures_.emplace_back(method, std::move(status));
}

void FakeJobService::BreakWatchAfter(int events) {
  const MutexLock lock(mu_);
  break_after_ = events;
}

void FakeJobService::HoldWatch() {
  const MutexLock lock(mu_);
  hold_ = true;
}

std::map<std::string, int> FakeJobService::calls() const {
  const MutexLock lock(mu_);
  return calls_;
}

job::v1::SubmitRequest FakeJobService::last_submit() const {
  const MutexLock lock(mu_);
  return last_submit_;
}

std::string FakeJobService::last_authorization() const {
  const MutexLock lock(mu_);
  return last_authorization_;
}

job::v1::ResumeRequest FakeJobService::last_resume() const {
  const MutexLock lock(mu_);
  return last_resume_;
}
job::v1::ScaleRequest FakeJobService::last_scale() const {
  const MutexLock lock(mu_);
  return last_scale_;
}

void FakeJobService::SetCheckpoint(std::vector<job::v1::FileChunk> chunks) {
  const MutexLock lock(mu_);
  checkpoint_ = std::move(chunks);
}
void FakeJobService::SetGenerated(int64_t last, std::vector<job::v1::FileChunk> chunks) {
  const MutexLock lock(mu_);
  last_generated_ = last;
  generated_ = std::move(chunks);
}
void FakeJobService::SetLedger(std::vector<std::string> rows) {
  const MutexLock lock(mu_);
  ledger_ = std::move(rows);
}
void FakeJobService::SetSamples(std::vector<std::string> rows) {
  const MutexLock lock(mu_);
  samples_ = std::move(rows);
}
void FakeJobService::SetLogs(std::vector<job::v1::LogEntry> entries) {
  const MutexLock lock(mu_);
  logs_ = std::move(entries);
}
void FakeJobService::SetCluster(job::v1::Cluster cluster) {
  const MutexLock lock(mu_);
  cluster_ = std::move(cluster);
}

grpc::Status FakeJobService::Submit(Context*, const job::v1::SubmitRequest* request, Job* job) {
  const MutexLock lock(mu_);
  const absl::Status status = Begin("Submit");
  if (!status.ok()) return StatusToGrpc(status);
  last_submit_ = *request;
  const JobResult parsed =
      ParseJob(request->yaml(), request->file_name(),
               {request->overrides().begin(), request->overrides().end()}, request->policy());
  if (!parsed.errors.empty()) return StatusToGrpc(ErrorsToStatus(parsed.errors));
  const std::string id = request->job_id().empty()
                             ? StrCat(parsed.spec.name(), "-", jobs_.size() + 1)
                             : request->job_id();
  Entry& entry = jobs_[id];
  if (entry.job.id().empty()) {
    entry.job = EndedJob(id, job::v1::JOB_STATE_SUCCEEDED);
    entry.events = EventsOfRun(3, job::v1::JOB_STATE_SUCCEEDED);
    *entry.job.mutable_spec() = parsed.spec;
  }
  *job = entry.job;
  job->set_state(job::v1::JOB_STATE_PENDING);
  return grpc::Status::OK;
}

grpc::Status FakeJobService::Validate(Context*, const job::v1::ValidateRequest* request,
                                      job::v1::ValidateReply* reply) {
  const MutexLock lock(mu_);
  const absl::Status status = Begin("Validate");
  if (!status.ok()) return StatusToGrpc(status);
  const JobResult parsed =
      ParseJob(request->yaml(), request->file_name(),
               {request->overrides().begin(), request->overrides().end()}, request->policy());
  if (!parsed.errors.empty()) return StatusToGrpc(ErrorsToStatus(parsed.errors));
  *reply->mutable_spec() = parsed.spec;
  reply->set_yaml(WriteJobYaml(parsed.spec));
  return grpc::Status::OK;
}

grpc::Status FakeJobService::Get(Context*, const job::v1::GetRequest* request, Job* job) {
  const MutexLock lock(mu_);
  const absl::Status status = Begin("Get");
  if (!status.ok()) return StatusToGrpc(status);
  const auto found = jobs_.find(request->job_id());
  if (found == jobs_.end()) return StatusToGrpc(NoSuchJob(request->job_id()));
  *job = found->second.job;
  return grpc::Status::OK;
}

grpc::Status FakeJobService::List(Context* context, const job::v1::ListRequest* request,
                                  job::v1::ListReply* reply) {
  const MutexLock lock(mu_);
  const auto header = context->client_metadata().find("authorization");
  last_authorization_ = header == context->client_metadata().end()
                            ? ""
                            : std::string(header->second.data(), header->second.size());
  const absl::Status status = Begin("List");
  if (!status.ok()) return StatusToGrpc(status);
  // Pages of two force callers to paginate.
  size_t at = request->page_token().empty() ? 0 : std::stoul(request->page_token());
  std::vector<Job> jobs;
  for (const auto& [id, entry] : jobs_) {
    bool wanted = request->states().empty();
    for (const int state : request->states()) wanted = wanted || state == entry.job.state();
    if (wanted) jobs.push_back(entry.job);
  }
  for (int i = 0; i < 2 && at < jobs.size(); ++i, ++at) *reply->add_jobs() = jobs[at];
  if (at < jobs.size()) reply->set_next_page_token(StrCat(at));
  return grpc::Status::OK;
}

grpc::Status FakeJobService::Watch(Context* context, const job::v1::WatchRequest* request,
                                   Writer<Event>* writer) {
  std::vector<Event> events;
  int break_after = 0;
  bool hold = false;
  {
    const MutexLock lock(mu_);
    const absl::Status status = Begin("Watch");
    if (!status.ok()) return StatusToGrpc(status);
    const auto found = jobs_.find(request->job_id());
    if (found == jobs_.end()) return StatusToGrpc(NoSuchJob(request->job_id()));
    events = found->second.events;
    break_after = break_after_;
    hold = hold_;
  }
  bool after = request->cursor().empty();
  int sent = 0;
  for (const Event& event : events) {
    if (after) {
      if (break_after > 0 && sent++ == break_after) {
        return {grpc::StatusCode::UNAVAILABLE, "the server goes down"};
      }
      writer->Write(event);
    }
    after = after || event.cursor() == request->cursor();
  }
  while (hold && !context->IsCancelled() && !stop_.WaitFor(absl::Milliseconds(20))) {
  }
  return grpc::Status::OK;
}

grpc::Status FakeJobService::SetState(const std::string& method, const std::string& id,
                                      job::v1::JobState state, const std::string& reason,
                                      Job* job) {
  const MutexLock lock(mu_);
  const absl::Status status = Begin(method);
  if (!status.ok()) return StatusToGrpc(status);
  const auto found = jobs_.find(id);
  if (found == jobs_.end()) return StatusToGrpc(NoSuchJob(id));
  found->second.job.set_state(state);
  found->second.job.set_reason(reason);
  *job = found->second.job;
  return grpc::Status::OK;
}

grpc::Status FakeJobService::Pause(Context*, const job::v1::PauseRequest* request, Job* job) {
  return SetState("Pause", request->job_id(), job::v1::JOB_STATE_PAUSED, request->reason(), job);
}
grpc::Status FakeJobService::Resume(Context*, const job::v1::ResumeRequest* request, Job* job) {
  {
    const MutexLock lock(mu_);
    last_resume_ = *request;
  }
  return SetState("Resume", request->job_id(), job::v1::JOB_STATE_RUNNING, "", job);
}
grpc::Status FakeJobService::Cancel(Context*, const job::v1::CancelRequest* request, Job* job) {
  return SetState("Cancel", request->job_id(), job::v1::JOB_STATE_CANCELLED, request->reason(),
                  job);
}

grpc::Status FakeJobService::Delete(Context*, const job::v1::DeleteRequest* request,
                                    job::v1::DeleteReply*) {
  const MutexLock lock(mu_);
  const absl::Status status = Begin("Delete");
  if (!status.ok()) return StatusToGrpc(status);
  jobs_.erase(request->job_id());
  return grpc::Status::OK;
}

grpc::Status FakeJobService::Scale(Context*, const job::v1::ScaleRequest* request,
                                   job::v1::ScaleReply* reply) {
  const MutexLock lock(mu_);
  const absl::Status status = Begin("Scale");
  if (!status.ok()) return StatusToGrpc(status);
  last_scale_ = *request;
  const std::string key =
      request->pool().empty() ? request->role() : request->role() + "/" + request->pool();
  reply->set_before((*cluster_.mutable_wanted())[key]);
  (*cluster_.mutable_wanted())[key] = request->replicas();
  reply->set_wanted(request->replicas());
  return grpc::Status::OK;
}

grpc::Status FakeJobService::ListCheckpoints(Context*, const job::v1::ListCheckpointsRequest*,
                                             job::v1::ListCheckpointsReply* reply) {
  const MutexLock lock(mu_);
  const absl::Status status = Begin("ListCheckpoints");
  if (!status.ok()) return StatusToGrpc(status);
  job::v1::CheckpointInfo* info = reply->add_checkpoints();
  info->set_version(20);
  info->set_size_bytes(1000);
  return grpc::Status::OK;
}

grpc::Status FakeJobService::ExportCheckpoint(Context*,
                                              const job::v1::ExportCheckpointRequest* request,
                                              Writer<job::v1::FileChunk>* writer) {
  std::vector<job::v1::FileChunk> chunks;
  {
    const MutexLock lock(mu_);
    const absl::Status status = Begin("ExportCheckpoint");
    if (!status.ok()) return StatusToGrpc(status);
    if (request->has_generated_after() && request->generated_after() >= last_generated_) {
      return StatusToGrpc(absl::NotFoundError("job a has no generated files of later steps"));
    }
    chunks = request->has_generated_after() ? generated_ : checkpoint_;
  }
  for (const job::v1::FileChunk& chunk : chunks) writer->Write(chunk);
  return grpc::Status::OK;
}

grpc::Status FakeJobService::ListSamples(Context*, const job::v1::ListSamplesRequest* request,
                                         job::v1::ListSamplesReply* reply) {
  const MutexLock lock(mu_);
  const absl::Status status = Begin("ListSamples");
  if (!status.ok()) return StatusToGrpc(status);
  for (const std::string& row : samples_) {
    if (reply->samples_json_size() < request->limit()) reply->add_samples_json(row);
  }
  return grpc::Status::OK;
}

grpc::Status FakeJobService::ReadLedger(Context*, const job::v1::ReadLedgerRequest*,
                                        Writer<job::v1::LedgerChunk>* writer) {
  job::v1::LedgerChunk chunk;
  {
    const MutexLock lock(mu_);
    const absl::Status status = Begin("ReadLedger");
    if (!status.ok()) return StatusToGrpc(status);
    for (const std::string& row : ledger_) chunk.add_rows(row);
  }
  writer->Write(chunk);
  return grpc::Status::OK;
}

grpc::Status FakeJobService::Logs(Context*, const job::v1::LogsRequest* request,
                                  Writer<job::v1::LogEntry>* writer) {
  std::vector<job::v1::LogEntry> entries;
  {
    const MutexLock lock(mu_);
    const absl::Status status = Begin("Logs");
    if (!status.ok()) return StatusToGrpc(status);
    entries = logs_;
  }
  for (const job::v1::LogEntry& entry : entries) {
    if (request->role().empty() || request->role() == entry.role()) writer->Write(entry);
  }
  return grpc::Status::OK;
}

grpc::Status FakeJobService::GetCluster(Context*, const job::v1::GetClusterRequest*,
                                        job::v1::Cluster* cluster) {
  const MutexLock lock(mu_);
  const absl::Status status = Begin("GetCluster");
  if (!status.ok()) return StatusToGrpc(status);
  *cluster = cluster_;
  return grpc::Status::OK;
}

std::vector<Event> EventsOfRun(int64_t steps, job::v1::JobState end, const std::string& reason) {
  std::vector<Event> events;
  const auto add = [&]() -> Event& {
    Event& event = events.emplace_back();
    event.set_cursor(StrCat(events.size()));
    event.mutable_time()->set_seconds(1700000000 + static_cast<int64_t>(events.size()));
    return event;
  };
  add().mutable_state()->set_state(job::v1::JOB_STATE_RUNNING);
  for (int64_t step = 1; step <= steps; ++step) {
    add().set_metrics_json(StrCat(R"({"step": )", step, R"(, "policy_version": )", step,
                                  R"(, "lineage": 0, "reward_mean": )", step, "e-1}"));
  }
  Event& last = add();
  last.mutable_state()->set_state(end);
  last.mutable_state()->set_reason(reason);
  return events;
}

Job EndedJob(const std::string& id, job::v1::JobState state, const std::string& reason) {
  Job job;
  job.set_id(id);
  job.set_name(id);
  job.set_state(state);
  job.set_reason(reason);
  job.set_steps(3);
  job.set_step(3);
  job.set_reward_mean(0.3);
  job.mutable_created()->set_seconds(1700000000);
  return job;
}

}  // namespace freshet
