#include "services/worker/worker_role.h"

#include <thread>
#include <utility>

#include "absl/time/clock.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "base/str_cat.h"
#include "base/utf8.h"

namespace freshet::runtime {

using cluster::v1::AssignmentStatus;

// Owned by the table and by the thread that runs its work.
struct WorkerRole::Assignment {
  std::string id;
  cluster::v1::Assign assign;

  Mutex mu;
  std::unique_ptr<JobWork> work ABSL_GUARDED_BY(mu);
  AssignmentStatus::State state ABSL_GUARDED_BY(mu) = AssignmentStatus::STATE_STARTING;
  absl::Status result ABSL_GUARDED_BY(mu);
  bool paused ABSL_GUARDED_BY(mu) = false;
  cluster::v1::Members members ABSL_GUARDED_BY(mu);
  Notification ended;

  std::jthread thread;

  void SetPaused(bool value) ABSL_LOCKS_EXCLUDED(mu) {
    MutexLock lock(mu);
    paused = value;
    if (work != nullptr) work->SetPaused(value);
  }
  // Ignores an older revision.
  void SetMembers(const cluster::v1::Members& value) ABSL_LOCKS_EXCLUDED(mu) {
    MutexLock lock(mu);
    if (value.revision() < members.revision()) return;
    members = value;
    if (work != nullptr) work->SetMembers(value);
  }
  bool Failed() ABSL_LOCKS_EXCLUDED(mu) {
    MutexLock lock(mu);
    return state == AssignmentStatus::STATE_FAILED;
  }
};

WorkerRole::WorkerRole(WorkerRoleOptions options, JobWorkFactory factory,
                       std::vector<grpc::Service*> services, LogRing* log)
    : options_(std::move(options)),
      factory_(std::move(factory)),
      services_(std::move(services)),
      log_(log) {}

WorkerRole::~WorkerRole() { WorkerRole::Stop(); }

absl::Status WorkerRole::Start(const RoleContext& context) {
  context_ = context;
  if (!options_.agent.has_value()) return absl::OkStatus();
  context_.readiness->Set("controller", false, "not registered yet");
  WorkerAgentOptions agent = *options_.agent;
  agent.identity.set_address(context.grpc_address);
  agent.identity.set_http_address(context.http_address);
  FRESHET_ASSIGN_OR_RETURN(agent_, WorkerAgent::Create(agent, *this, *this, log_));
  agent_->Begin();
  return absl::OkStatus();
}

absl::Status WorkerRole::Drain(absl::Time deadline) {
  {
    MutexLock lock(mu_);
    draining_ = true;
  }
  // Makes the controller route calls elsewhere.
  if (agent_ != nullptr) agent_->SendStatusNow();
  if (options_.drain_calls) options_.drain_calls(deadline);
  if (agent_ == nullptr) return absl::OkStatus();
  for (const auto& assignment : All()) assignment->thread.request_stop();
  // Work that does not end in time is abandoned to Stop; its leases expire.
  bool all_ended = true;
  for (const auto& assignment : All()) {
    all_ended = assignment->ended.WaitFor(deadline - absl::Now()) && all_ended;
  }
  const absl::Status left = agent_->Deregister("drained");
  if (!left.ok()) {
    FRESHET_LOG(Warning) << "event=deregister_failed error=" << LogQuoted(Message(left));
  }
  if (!all_ended) return StatusOf(absl::StatusCode::kDeadlineExceeded, "the drain took too long");
  return absl::OkStatus();
}

void WorkerRole::Stop() {
  if (agent_ != nullptr) agent_->Stop();
  for (const auto& assignment : All()) End(assignment->id);
}

std::vector<std::shared_ptr<WorkerRole::Assignment>> WorkerRole::All() {
  MutexLock lock(mu_);
  std::vector<std::shared_ptr<Assignment>> all;
  for (const auto& [id, assignment] : assignments_) all.push_back(assignment);
  return all;
}

void WorkerRole::FillStatus(cluster::v1::WorkerStatus& status) {
  {
    MutexLock lock(mu_);
    status.set_draining(draining_);
  }
  if (options_.fill_load) options_.fill_load(status);
  for (const auto& assignment : All()) {
    AssignmentStatus& one = *status.add_assignments();
    one.set_assignment_id(assignment->id);
    MutexLock lock(assignment->mu);
    one.set_state(assignment->state);
    if (!assignment->result.ok()) {
      one.set_error(ValidUtf8(Message(assignment->result)));
      one.set_error_code(static_cast<int>(assignment->result.code()));
    }
    if (assignment->work == nullptr) continue;
    assignment->work->FillStatus(one);
    one.set_waits_for(ValidUtf8(one.waits_for()));
    assignment->work->FillLoad(status);
    if (one.state() == AssignmentStatus::STATE_RUNNING && assignment->paused) {
      one.set_state(AssignmentStatus::STATE_PAUSED);
    }
  }
}

std::vector<std::string> WorkerRole::AssignmentIds() {
  std::vector<std::string> ids;
  for (const auto& assignment : All()) ids.push_back(assignment->id);
  return ids;
}

void WorkerRole::OnEpoch(const std::string& worker) {
  {
    MutexLock lock(mu_);
    worker_ = worker;
  }
  for (const auto& assignment : All()) {
    MutexLock lock(assignment->mu);
    if (assignment->work != nullptr) assignment->work->SetWorker(worker);
  }
  context_.readiness->Set("controller", true);
}

void WorkerRole::OnFenced(const std::string& reason) {
  FRESHET_LOG(Warning) << "event=fenced reason=" << LogQuoted(reason);
  context_.readiness->Set("controller", false, reason);
}

void WorkerRole::OnDirective(const cluster::v1::Directive& directive) {
  switch (directive.directive_case()) {
    case cluster::v1::Directive::kAssign:
      return OnAssign(directive.assign());
    case cluster::v1::Directive::kUnassign:
      FRESHET_LOG(Info) << "event=unassigned assignment=" << directive.unassign().assignment_id()
                        << " reason=" << LogQuoted(directive.unassign().reason());
      return End(directive.unassign().assignment_id());
    case cluster::v1::Directive::kPause:
      if (const auto assignment = Find(directive.pause().assignment_id())) {
        assignment->SetPaused(directive.pause().paused());
      }
      return;
    case cluster::v1::Directive::kMembers:
      if (const auto assignment = Find(directive.members().assignment_id())) {
        assignment->SetMembers(directive.members());
      }
      return;
    case cluster::v1::Directive::kEvaluate:
      return WithWork(directive.evaluate().assignment_id(),
                      [&](JobWork& work) { work.Evaluate(directive.evaluate()); });
    case cluster::v1::Directive::kSaveCheckpoint:
      return WithWork(directive.save_checkpoint().assignment_id(),
                      [](JobWork& work) { work.SaveCheckpoint(); });
    case cluster::v1::Directive::kDrain:
      FRESHET_LOG(Info) << "event=drain reason=" << LogQuoted(directive.drain().reason());
      return context_.request_drain(absl::OkStatus());
    case cluster::v1::Directive::DIRECTIVE_NOT_SET:
      FRESHET_LOG(Warning) << "event=unknown_directive";
  }
}

std::shared_ptr<WorkerRole::Assignment> WorkerRole::Find(const std::string& assignment_id) {
  MutexLock lock(mu_);
  const auto found = assignments_.find(assignment_id);
  return found == assignments_.end() ? nullptr : found->second;
}

void WorkerRole::WithWork(const std::string& assignment_id,
                          const std::function<void(JobWork&)>& fn) {
  const auto assignment = Find(assignment_id);
  if (assignment == nullptr) return;
  MutexLock lock(assignment->mu);
  if (assignment->work != nullptr) fn(*assignment->work);
}

void WorkerRole::OnAssign(const cluster::v1::Assign& assign) {
  const std::string& id = assign.assignment_id();
  // Failed work restarts when it is assigned again.
  if (const auto running = Find(id); running != nullptr && !running->Failed()) {
    running->SetPaused(assign.paused());
    return running->SetMembers(assign.members());
  }
  End(id);
  if (options_.exclusive) {
    for (const auto& other : All()) End(other->id);
  }
  auto assignment = std::make_shared<Assignment>();
  assignment->id = id;
  assignment->assign = assign;
  assignment->SetPaused(assign.paused());
  assignment->SetMembers(assign.members());
  MutexLock lock(mu_);
  if (draining_ || factory_ == nullptr) return;
  FRESHET_LOG(Info) << "event=assigned assignment=" << id << " job=" << assign.job_id();
  assignments_[id] = assignment;
  assignment->thread = std::jthread(
      [this, assignment](std::stop_token stop) { RunAssignment(assignment, std::move(stop)); });
}

void WorkerRole::RunAssignment(const std::shared_ptr<Assignment>& assignment,
                               std::stop_token stop) {
  const LogScope scope(assignment->assign.job_id());
  std::string worker;
  {
    MutexLock lock(mu_);
    worker = worker_;
  }
  absl::StatusOr<std::unique_ptr<JobWork>> made =
      factory_(assignment->assign, worker, *agent_, stop);
  absl::Status result = made.status();
  if (made.ok()) {
    JobWork* work = made->get();
    std::string now;
    {
      MutexLock lock(mu_);
      now = worker_;
    }
    {
      MutexLock lock(assignment->mu);
      assignment->work = *std::move(made);
      assignment->state = AssignmentStatus::STATE_RUNNING;
      if (now != worker) work->SetWorker(now);
      work->SetPaused(assignment->paused);
      work->SetMembers(assignment->members);
    }
    result = work->Run(stop);
  }
  if (!result.ok()) {
    FRESHET_LOG(Error) << "event=work_failed job=" << assignment->assign.job_id()
                       << " error=" << LogQuoted(Message(result));
  }
  {
    MutexLock lock(assignment->mu);
    assignment->result = result;
    assignment->state = result.ok() ? AssignmentStatus::STATE_DONE : AssignmentStatus::STATE_FAILED;
  }
  assignment->ended.Notify();
  if (!stop.stop_requested()) agent_->SendStatusNow();
}

void WorkerRole::End(const std::string& assignment_id) {
  const auto assignment = Find(assignment_id);
  if (assignment == nullptr) return;
  assignment->thread.request_stop();
  if (assignment->thread.joinable()) assignment->thread.join();
  std::unique_ptr<JobWork> work;
  {
    MutexLock lock(assignment->mu);
    work = std::move(assignment->work);
  }
  work.reset();
  MutexLock lock(mu_);
  assignments_.erase(assignment_id);
}

}  // namespace freshet::runtime
