#include "controller/jobs/plan/assignment_plan.h"

#include <algorithm>
#include <utility>

#include "base/proto_time.h"
#include "base/str_cat.h"
#include "services/worker/role_name.h"

namespace freshet {
namespace {

using cluster::v1::ROLE_ENV;
using cluster::v1::ROLE_REWARD;
using cluster::v1::ROLE_ROLLOUT;
using cluster::v1::ROLE_TRAINER;

bool IsAlive(const Member* member) { return member != nullptr && !member->record.lost(); }

bool TakesWork(const Member& member) {
  return !member.record.lost() && member.connected && !member.status.draining();
}

// Whether the job uses every worker of this kind.
bool Serves(const JobRecord& job, const Member& member) {
  switch (member.record.role()) {
    case ROLE_ROLLOUT:
      return member.record.pool() == job.pool() && EngineOf(member.record) == EngineOf(job.spec());
    case ROLE_REWARD:
      return true;
    case ROLE_ENV:
      return NeedsEnvWorkers(job.spec());
    default:
      return false;
  }
}

class Planner {
 public:
  Planner(JobRecord& record, const std::vector<Member>& workers, const AssignmentRules& rules,
          absl::Time now)
      : record_(record), workers_(workers), rules_(rules), now_(now) {}

  AssignmentChange Run() {
    for (const Assignment& assignment :
         std::vector<Assignment>(record_.assignments().begin(), record_.assignments().end())) {
      if (assignment.role() == ROLE_TRAINER) {
        KeepTrainer(assignment);
      } else {
        KeepWorker(assignment);
      }
    }
    for (const Member& member : workers_) {
      if (TakesWork(member) && Serves(record_, member) && !Has(member.record.name())) {
        Add(member);
      }
    }
    record_.mutable_assignments()->Assign(next_.begin(), next_.end());
    return std::move(change_);
  }

 private:
  bool Has(const std::string& worker) const {
    return std::any_of(next_.begin(), next_.end(),
                       [&worker](const Assignment& a) { return a.worker() == worker; });
  }
  void Add(const Member& member) {
    const cluster::v1::WorkerRecord& worker = member.record;
    next_.push_back(NewAssignment(record_, worker.role(), worker.name(), worker.epoch(),
                                  worker.incarnation(), now_));
  }
  void Note(Severity severity, const char* kind, std::string text) {
    change_.notes.push_back({severity, kind, std::move(text)});
  }
  void NoteFailure(const Assignment& assignment) {
    const std::string& what = rules_.replace.at(assignment.id());
    if (what.empty()) return;
    Note(Severity::kWarning, "worker_failed", StrCat(what, "; its work begins again"));
  }

  void KeepWorker(const Assignment& assignment) {
    const Member* member = FindMember(workers_, assignment.worker());
    const bool same = IsAlive(member) && member->record.epoch() == assignment.epoch() &&
                      member->record.role() == assignment.role() && Serves(record_, *member);
    if (same && !rules_.replace.contains(assignment.id())) {
      next_.push_back(assignment);
      return;
    }
    if (same) {  // restart under a new id if the worker takes work
      NoteFailure(assignment);
      return;
    }
    if (assignment.role() != ROLE_ENV) {
      change_.revoke.push_back(LeaseName(assignment.worker(), assignment.epoch()));
    }
    const std::string who = StrCat(RoleName(assignment.role()), " ", assignment.worker());
    if (member != nullptr && member->record.lost()) {
      Note(Severity::kWarning, "worker_lost",
           StrCat(who, " is lost: ", member->record.lost_reason(), "; its leases return"));
    } else {
      Note(Severity::kInfo, "worker_left", StrCat(who, " left, or restarted as a new process"));
    }
  }

  void KeepTrainer(Assignment assignment) {
    const Member* member = FindMember(workers_, assignment.worker());
    const std::string who = StrCat("trainer ", assignment.worker());
    if (IsAlive(member) && member->record.role() == ROLE_TRAINER) {
      if (member->record.incarnation() != assignment.incarnation()) {
        Note(Severity::kInfo, "trainer_restarted", StrCat(who, " is a new process"));
        Add(*member);
        return;
      }
      if (rules_.replace.contains(assignment.id())) {
        NoteFailure(assignment);
        Add(*member);
        return;
      }
      if (member->record.epoch() != assignment.epoch()) {
        Note(Severity::kInfo, "worker_back", StrCat(who, " is back"));
        assignment.set_epoch(member->record.epoch());
        *assignment.mutable_since() = ToTimestamp(now_);
      }
      next_.push_back(assignment);
      return;
    }
    const Member* other =
        rules_.other_trainer.empty() ? nullptr : FindMember(workers_, rules_.other_trainer);
    if (other != nullptr && TakesWork(*other) && other->record.role() == ROLE_TRAINER) {
      Note(Severity::kWarning, "trainer_replaced",
           StrCat(who, " did not come back; trainer ", other->record.name(),
                  " takes its place and needs its checkpoints"));
      record_.set_trainer(other->record.name());
      Add(*other);
      return;
    }
    if (assignment.epoch() != 0) {
      const std::string why =
          member != nullptr ? StrCat("is lost: ", member->record.lost_reason()) : "left";
      Note(Severity::kWarning, "worker_lost", StrCat(who, " ", why, "; its place is kept"));
      assignment.set_epoch(0);
      *assignment.mutable_since() = ToTimestamp(now_);
    }
    next_.push_back(assignment);
  }

  JobRecord& record_;
  const std::vector<Member>& workers_;
  const AssignmentRules& rules_;
  const absl::Time now_;
  std::vector<Assignment> next_;
  AssignmentChange change_;
};

}  // namespace

AssignmentChange PlanAssignments(JobRecord& record, const std::vector<Member>& workers,
                                 const AssignmentRules& rules, absl::Time now) {
  return Planner(record, workers, rules, now).Run();
}

const Assignment* FindAssignment(const JobRecord& record, cluster::v1::Role role) {
  for (const Assignment& assignment : record.assignments()) {
    if (assignment.role() == role) return &assignment;
  }
  return nullptr;
}

const Member* FindMember(const std::vector<Member>& workers, const std::string& name) {
  for (const Member& member : workers) {
    if (member.record.name() == name) return &member;
  }
  return nullptr;
}

}  // namespace freshet
