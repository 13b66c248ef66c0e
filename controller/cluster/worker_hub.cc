#include "controller/cluster/worker_hub.h"

#include <algorithm>
#include <utility>

#include "absl/time/clock.h"
#include "base/log.h"
#include "base/proto_time.h"
#include "base/status_macros.h"
#include "base/str_cat.h"
#include "controller/jobs/record/deposed.h"
#include "controller/jobs/record/job_record.h"
#include "services/worker/role_name.h"

namespace freshet {
namespace {

constexpr char kClusterRecord[] = "cluster";

absl::Status ClosedStatus() {
  return Deposed(StatusOf(absl::StatusCode::kUnavailable, "this controller no longer leads"));
}

// Whether drivers care about the difference between two statuses.
bool Differs(const cluster::v1::WorkerStatus& a, const cluster::v1::WorkerStatus& b) {
  if (a.draining() != b.draining() || a.assignments_size() != b.assignments_size()) return true;
  for (int i = 0; i < a.assignments_size(); ++i) {
    const cluster::v1::AssignmentStatus& x = a.assignments(i);
    const cluster::v1::AssignmentStatus& y = b.assignments(i);
    if (x.assignment_id() != y.assignment_id() || x.state() != y.state()) return true;
    if (x.policy().version() != y.policy().version() ||
        x.policy().lineage() != y.policy().lineage()) {
      return true;
    }
  }
  return false;
}

// Up to `most` connected workers of a pool beyond `replicas`, the last names first ("rollout-10"
// before "rollout-2").
std::vector<const Member*> SurplusOf(const std::map<std::string, Member>& members,
                                     const std::string& key, int32_t replicas, int32_t most) {
  std::vector<const Member*> pool;
  for (const auto& [name, member] : members) {
    if (member.record.lost() || !member.connected || member.status.draining()) continue;
    if (PoolKey(RoleName(member.record.role()), member.record.pool()) == key) {
      pool.push_back(&member);
    }
  }
  const auto kept = std::min(pool.size(), static_cast<size_t>(replicas));
  const auto rank = [](const Member* member) {
    return std::pair(member->record.name().size(), member->record.name());
  };
  std::sort(pool.begin(), pool.end(),
            [&](const Member* a, const Member* b) { return rank(a) > rank(b); });
  pool.resize(std::min(pool.size() - kept, static_cast<size_t>(std::max(most, 0))));
  return pool;
}

}  // namespace

absl::StatusOr<std::unique_ptr<WorkerHub>> WorkerHub::Create(JobRecordStore& records, int64_t fence,
                                                             const Clock& clock,
                                                             WorkerHubOptions options) {
  cluster::v1::ClusterRecord stored;
  const absl::StatusOr<StoredRecord> record = records.Get(kClusterRecord);
  if (record.ok()) {
    if (!stored.ParseFromString(record->value)) {
      return DataLoss("the record of the cluster in the datastore cannot be read");
    }
  } else if (record.status().code() == absl::StatusCode::kNotFound) {
    const absl::Status created =
        records.Create(kClusterRecord, stored.SerializeAsString(), fence).status();
    if (!created.ok() && created.code() != absl::StatusCode::kAlreadyExists) return created;
  } else {
    return record.status();
  }
  return std::unique_ptr<WorkerHub>(new WorkerHub(records, fence, clock, options, stored));
}

WorkerHub::WorkerHub(JobRecordStore& records, int64_t fence, const Clock& clock,
                     WorkerHubOptions options, const cluster::v1::ClusterRecord& stored)
    : records_(records),
      fence_(fence),
      clock_(clock),
      options_(options),
      membership_(options.membership, stored, clock.Now()),
      wanted_(stored.wanted().begin(), stored.wanted().end()) {}

absl::Status WorkerHub::Store(const std::function<void(Membership&)>& change,
                              const std::map<std::string, int32_t>* wanted) {
  cluster::v1::ClusterRecord record;
  {
    MutexLock lock(mu_);
    if (closed_) return ClosedStatus();
    Membership next = membership_;
    change(next);
    next.Store(record);
    for (const auto& [key, replicas] : wanted != nullptr ? *wanted : wanted_) {
      (*record.mutable_wanted())[key] = replicas;
    }
  }
  FRESHET_ASSIGN_OR_RETURN(const StoredRecord stored, records_.Get(kClusterRecord));
  return DeposedIfFenced(
      records_.Update(kClusterRecord, stored.revision, record.SerializeAsString(), fence_)
          .status());
}

absl::StatusOr<cluster::v1::RegisterReply> WorkerHub::Register(
    const cluster::v1::RegisterRequest& request) {
  MutexLock write_lock(write_mu_);
  const absl::Time now = clock_.Now();
  Registration registration;
  {
    MutexLock lock(mu_);
    if (closed_) return ClosedStatus();
    FRESHET_ASSIGN_OR_RETURN(registration, membership_.PlanRegister(request, now));
  }
  if (!registration.confirmed) {
    FRESHET_RETURN_IF_ERROR(
        Store([&](Membership& members) { members.Register(registration, now); }, nullptr));
  }
  std::shared_ptr<Session> former;
  {
    MutexLock lock(mu_);
    membership_.Register(registration, clock_.Now());
    former = TakeSession(request.worker(), registration.record.epoch());
    Changed();
  }
  if (former != nullptr) {
    former->stream->Finish(
        FailedPrecondition("epoch ", former->epoch, " of worker ", request.worker(), " is fenced"));
  }
  FRESHET_LOG(Info) << "event=member_registered member=" << request.worker()
                    << " epoch=" << registration.record.epoch()
                    << " reason=" << LogQuoted(registration.reason);
  cluster::v1::RegisterReply reply;
  reply.set_epoch(registration.record.epoch());
  *reply.mutable_heartbeat_interval() = ToDuration(options_.heartbeat_interval);
  *reply.mutable_lost_after() = ToDuration(options_.membership.lost_after);
  return reply;
}

absl::Status WorkerHub::Deregister(const std::string& worker, int64_t epoch) {
  MutexLock write_lock(write_mu_);
  {
    MutexLock lock(mu_);
    if (closed_) return ClosedStatus();
    const auto found = membership_.members().find(worker);
    if (found == membership_.members().end() || found->second.record.epoch() != epoch) {
      return absl::OkStatus();
    }
  }
  FRESHET_RETURN_IF_ERROR(
      Store([&](Membership& members) { members.Remove(worker, epoch); }, nullptr));
  std::shared_ptr<Session> session;
  {
    MutexLock lock(mu_);
    membership_.Remove(worker, epoch);
    session = TakeSession(worker, 0);
    Changed();
  }
  if (session != nullptr) session->stream->Finish(absl::OkStatus());
  FRESHET_LOG(Info) << "event=member_left member=" << worker << " epoch=" << epoch;
  return absl::OkStatus();
}

absl::Status WorkerHub::OnStatus(const std::shared_ptr<DirectiveStream>& stream,
                                 const cluster::v1::WorkerStatus& status) {
  std::shared_ptr<Session> session;
  std::shared_ptr<Session> former;
  cluster::v1::Role role = cluster::v1::ROLE_UNSPECIFIED;
  {
    MutexLock lock(mu_);
    if (closed_) return ClosedStatus();
    const auto member = membership_.members().find(status.worker());
    const bool first_status = member != membership_.members().end() && !member->second.connected;
    const bool differs = first_status || (member != membership_.members().end() &&
                                          Differs(member->second.status, status));
    FRESHET_RETURN_IF_ERROR(membership_.OnStatus(status, clock_.Now()));
    role = member->second.record.role();
    std::shared_ptr<Session>& slot = sessions_[status.worker()];
    if (slot == nullptr || slot->stream != stream) {
      former = slot;
      std::vector<std::string> working_on;
      for (const auto& assignment : status.assignments()) {
        working_on.push_back(assignment.assignment_id());
      }
      slot = std::make_shared<Session>(
          Session{stream, status.worker(), status.epoch(), DirectivePlan(working_on)});
    }
    session = slot;
    if (differs) Changed();
  }
  if (former != nullptr) {
    former->stream->Finish(StatusOf(absl::StatusCode::kAborted, "another stream took over"));
  }
  log_.Add(role, status);
  Flush(session);
  return absl::OkStatus();
}

void WorkerHub::OnStreamEnd(const DirectiveStream* stream) {
  MutexLock lock(mu_);
  for (auto it = sessions_.begin(); it != sessions_.end(); ++it) {
    if (it->second->stream.get() != stream) continue;
    sessions_.erase(it);
    return;
  }
}

absl::StatusOr<std::vector<LostWorker>> WorkerHub::Check() {
  MutexLock write_lock(write_mu_);
  const absl::Time now = clock_.Now();
  std::vector<LostWorker> lost;
  std::vector<std::string> forgotten;
  {
    MutexLock lock(mu_);
    if (closed_) return ClosedStatus();
    lost = membership_.FindLost(now);
    forgotten = membership_.FindForgettable(now);
  }
  if (lost.empty() && forgotten.empty()) return lost;
  const auto change = [&](Membership& members) {
    for (const LostWorker& worker : lost) members.MarkLost(worker, now);
    for (const std::string& name : forgotten) members.Forget(name);
  };
  FRESHET_RETURN_IF_ERROR(Store(change, nullptr));
  std::vector<std::shared_ptr<Session>> ended;
  {
    MutexLock lock(mu_);
    change(membership_);
    for (const LostWorker& worker : lost) {
      if (auto session = TakeSession(worker.name, 0)) ended.push_back(std::move(session));
    }
    Changed();
  }
  for (const auto& session : ended) {
    session->stream->Finish(FailedPrecondition("epoch ", session->epoch, " of worker ",
                                               session->worker, " is fenced: it was lost"));
  }
  for (const LostWorker& worker : lost) {
    FRESHET_LOG(Warning) << "event=member_lost member=" << worker.name << " epoch=" << worker.epoch
                         << " reason=" << LogQuoted(worker.reason);
  }
  return lost;
}

std::shared_ptr<WorkerHub::Session> WorkerHub::TakeSession(const std::string& worker,
                                                           int64_t except_epoch) {
  const auto found = sessions_.find(worker);
  if (found == sessions_.end() || found->second->epoch == except_epoch) return nullptr;
  std::shared_ptr<Session> session = std::move(found->second);
  sessions_.erase(found);
  return session;
}

std::vector<DesiredAssignment> WorkerHub::DesiredOf(const Session& session) const {
  std::vector<DesiredAssignment> desired;
  for (const auto& [job, wishes] : desired_) {
    for (const DesiredAssignment& wish : wishes) {
      if (wish.worker != session.worker) continue;
      if (wish.epoch == session.epoch) {
        desired.push_back(wish);
      } else if (wish.keeps_place) {
        desired.push_back({wish.id, wish.worker, session.epoch, nullptr, false, nullptr, true});
      }
    }
  }
  return desired;
}

void WorkerHub::Flush(const std::shared_ptr<Session>& session) {
  {
    MutexLock lock(mu_);
    if (session->flushing) return;  // the flushing thread checks again before it stops
    session->flushing = true;
  }
  while (true) {
    std::optional<cluster::v1::Directive> directive;
    {
      MutexLock lock(mu_);
      directive = session->plan.Next(DesiredOf(*session));
      if (!directive.has_value()) {
        session->flushing = false;
        return;
      }
    }
    if (session->stream->Send(*directive)) continue;
    // The worker's state is now unknown; a new stream starts over.
    session->stream->Finish(ResourceExhausted("too many pending directives; reconnect"));
    MutexLock lock(mu_);
    session->flushing = false;
    return;
  }
}

void WorkerHub::SetDesired(const std::string& job, std::vector<DesiredAssignment> desired) {
  std::vector<std::shared_ptr<Session>> sessions;
  {
    MutexLock lock(mu_);
    if (desired.empty()) {
      desired_.erase(job);
    } else {
      desired_[job] = std::move(desired);
    }
    for (const auto& [worker, session] : sessions_) sessions.push_back(session);
  }
  for (const auto& session : sessions) Flush(session);
}

absl::Status WorkerHub::Send(const std::string& worker, int64_t epoch,
                             const cluster::v1::Directive& directive) {
  std::shared_ptr<DirectiveStream> stream;
  {
    MutexLock lock(mu_);
    const auto found = sessions_.find(worker);
    if (found != sessions_.end() && found->second->epoch == epoch) stream = found->second->stream;
  }
  if (stream == nullptr || !stream->Send(directive)) {
    return StatusOf(absl::StatusCode::kUnavailable, "worker ", worker, " is not connected");
  }
  return absl::OkStatus();
}

std::vector<Member> WorkerHub::Workers() const {
  MutexLock lock(mu_);
  std::vector<Member> members;
  for (const auto& [name, member] : membership_.members()) members.push_back(member);
  return members;
}

absl::Status WorkerHub::CheckEpoch(const std::string& worker, int64_t epoch) const {
  MutexLock lock(mu_);
  const auto found = membership_.members().find(worker);
  if (found != membership_.members().end() && found->second.record.epoch() == epoch &&
      !found->second.record.lost()) {
    return absl::OkStatus();
  }
  return FailedPrecondition("epoch ", epoch, " of worker ", worker, " is fenced; register again");
}

absl::StatusOr<int32_t> WorkerHub::SetWanted(const std::string& role, const std::string& pool,
                                             int32_t replicas, Surplus surplus) {
  FRESHET_RETURN_IF_ERROR(CheckScale(role, pool, replicas));
  MutexLock write_lock(write_mu_);
  std::map<std::string, int32_t> wanted = Wanted();
  const std::string key = PoolKey(role, pool);
  const auto known = wanted.find(key);
  const int32_t before = known == wanted.end() ? 0 : known->second;
  // If the pool was never scaled before, all its workers may be drained.
  const int32_t most = surplus == Surplus::kStays ? 0
                       : known == wanted.end()    ? kMaxReplicas
                                                  : before - replicas;
  wanted[key] = replicas;
  FRESHET_RETURN_IF_ERROR(Store([](Membership&) {}, &wanted));
  std::vector<std::shared_ptr<Session>> draining;
  {
    MutexLock lock(mu_);
    wanted_ = std::move(wanted);
    for (const Member* member : SurplusOf(membership_.members(), key, replicas, most)) {
      const auto found = sessions_.find(member->record.name());
      if (found != sessions_.end()) draining.push_back(found->second);
    }
  }
  cluster::v1::Directive directive;
  directive.mutable_drain()->set_reason(StrCat(replicas, " of ", key, " wanted"));
  for (const auto& session : draining) {
    FRESHET_LOG(Info) << "event=member_drains member=" << session->worker
                      << " epoch=" << session->epoch
                      << " reason=" << LogQuoted(directive.drain().reason());
    session->stream->Send(directive);
  }
  return before;
}

std::map<std::string, int32_t> WorkerHub::Wanted() {
  MutexLock lock(mu_);
  return wanted_;
}

void WorkerHub::Changed() {
  ++changes_;
  changed_.NotifyAll();
}

uint64_t WorkerHub::ChangeCount() const {
  MutexLock lock(mu_);
  return changes_;
}

uint64_t WorkerHub::AwaitChange(uint64_t seen, absl::Duration timeout) const {
  const absl::Time deadline = absl::Now() + timeout;
  MutexLock lock(mu_);
  while (changes_ <= seen && !closed_) {
    const absl::Duration left = deadline - absl::Now();
    if (left <= absl::ZeroDuration()) break;
    changed_.WaitFor(mu_, left);
  }
  return changes_;
}

void WorkerHub::Wake() {
  MutexLock lock(mu_);
  Changed();
}

void WorkerHub::Close(const absl::Status& status) {
  std::map<std::string, std::shared_ptr<Session>> sessions;
  {
    MutexLock lock(mu_);
    closed_ = true;
    sessions.swap(sessions_);
    changed_.NotifyAll();
  }
  log_.Close();
  for (const auto& [worker, session] : sessions) session->stream->Finish(status);
}

}  // namespace freshet
