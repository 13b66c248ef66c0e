#include "controller/api/job_changes.h"

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "base/proto_time.h"
#include "base/status_macros.h"
#include "base/str_cat.h"
#include "controller/api/job_files.h"
#include "controller/api/job_views.h"
#include "controller/jobs/plan/team_plan.h"
#include "services/worker/role_name.h"

namespace freshet {
namespace {

bool WorksOn(const Member& member, const std::string& job) {
  return std::any_of(member.status.assignments().begin(), member.status.assignments().end(),
                     [&job](const cluster::v1::AssignmentStatus& assignment) {
                       return JobOfAssignment(assignment.assignment_id()) == job;
                     });
}

// UNAVAILABLE: workers of the job have not stopped. They could write data that nobody would remove.
absl::Status CheckWorkersStopped(ControllerTerm& term, const std::string& job) {
  if (term.manager.Driver(job) != nullptr) {
    return StatusOf(absl::StatusCode::kUnavailable, "the workers of job ", job,
                    " are still stopping; try again");
  }
  for (const Member& member : term.hub->Workers()) {
    if (member.record.lost() || !WorksOn(member, job)) continue;
    return StatusOf(absl::StatusCode::kUnavailable, RoleName(member.record.role()), " ",
                    member.record.name(), " is still stopping its work on job ", job,
                    "; try again");
  }
  return absl::OkStatus();
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

absl::StatusOr<job::v1::Job> ChangeJob(
    const Controller& controller, ControllerTerm& term, const std::string& id,
    const std::function<absl::Status(JobRecord&, absl::Time)>& change) {
  FRESHET_ASSIGN_OR_RETURN(const JobRecord record, term.registry.Change(id, [&](JobRecord& r) {
    return change(r, controller.ports().clock.Now());
  }));
  term.manager.LookAtQueue();
  return ToDetailedJob(record, nullptr);
}

}  // namespace

absl::StatusOr<job::v1::Job> PauseJob(const Controller& controller, ControllerTerm& term,
                                      const job::v1::PauseRequest& request) {
  return ChangeJob(controller, term, request.job_id(),
                   [&request](JobRecord& record, absl::Time now) {
                     return WantPaused(record, request.reason(), now);
                   });
}

absl::StatusOr<job::v1::Job> ResumeJob(const Controller& controller, ControllerTerm& term,
                                       const job::v1::ResumeRequest& request) {
  FRESHET_ASSIGN_OR_RETURN(JobRecord record, term.registry.Get(request.job_id()));
  FRESHET_RETURN_IF_ERROR(RaiseMaxCalls(record, request.max_calls()));
  JobRecord tried = record;  // a job that cannot be resumed leaves its team as it is
  FRESHET_RETURN_IF_ERROR(WantResumed(tried, controller.ports().clock.Now()));
  std::vector<std::string> resumed;
  if (!record.spec().team().empty() && HasEnded(record.state())) {
    FRESHET_ASSIGN_OR_RETURN(const std::vector<JobRecord> records, term.registry.List());
    FRESHET_ASSIGN_OR_RETURN(const std::vector<std::string> others,
                             FindTeamResumes(records, record));
    resumed.reserve(others.size());
    for (const std::string& other : others) {
      FRESHET_RETURN_IF_ERROR(
          HalfResumed(ChangeJob(controller, term, other, WantResumed).status(), resumed));
      resumed.push_back(other);
    }
  }
  absl::StatusOr<job::v1::Job> job =
      ChangeJob(controller, term, request.job_id(), [&request](JobRecord& changed, absl::Time now) {
        absl::Status raised = RaiseMaxCalls(changed, request.max_calls());
        return raised.ok() ? WantResumed(changed, now) : raised;
      });
  if (!job.ok()) return HalfResumed(job.status(), resumed);
  return job;
}

absl::StatusOr<job::v1::Job> CancelJob(const Controller& controller, ControllerTerm& term,
                                       const job::v1::CancelRequest& request) {
  return ChangeJob(controller, term, request.job_id(),
                   [&controller, &request](JobRecord& record, absl::Time now) {
                     FRESHET_RETURN_IF_ERROR(WantCancelled(record, request.reason(), now));
                     if (HasEnded(record.state()) && !record.has_expires()) {
                       *record.mutable_expires() =
                           ToTimestamp(now + controller.options().retention.keep);
                     }
                     return absl::OkStatus();
                   });
}

absl::StatusOr<job::v1::DeleteReply> DeleteJob(const Controller& controller, ControllerTerm& term,
                                               const job::v1::DeleteRequest& request) {
  const absl::StatusOr<JobRecord> record = term.registry.Get(request.job_id());
  if (absl::IsNotFound(record.status()) && term.registry.HasDeleted(request.job_id())) {
    return job::v1::DeleteReply();  // a repeated request
  }
  FRESHET_RETURN_IF_ERROR(record.status());
  JobRecord ended = *record;
  FRESHET_RETURN_IF_ERROR(WantDeleted(ended));
  if (!record->spec().team().empty()) {
    FRESHET_ASSIGN_OR_RETURN(const std::vector<JobRecord> records, term.registry.List());
    FRESHET_RETURN_IF_ERROR(CheckTeamEnded(records, *record));
  }
  FRESHET_RETURN_IF_ERROR(CheckWorkersStopped(term, record->id()));
  std::string trainer_address;
  if (!request.keep_checkpoints() && !record->trainer().empty()) {
    const absl::StatusOr<std::string> address = TrainerAddress(term, *record);
    if (!address.ok()) {
      return StatusOf(absl::StatusCode::kUnavailable, Message(address.status()),
                      "; try again when it is, or keep the checkpoints");
    }
    trainer_address = *address;
  }
  FRESHET_ASSIGN_OR_RETURN(const JobRecord marked, term.registry.Change(record->id(), WantDeleted));
  if (!trainer_address.empty()) {
    FRESHET_RETURN_IF_ERROR(controller.ports().trainers.DeleteJobFiles(
        trainer_address, record->id(), controller.options().timing.call_deadline));
  }
  FRESHET_RETURN_IF_ERROR(term.registry.Delete(marked, [&controller](const JobRemoval& job) {
    return controller.ports().stores.Delete(job);
  }));
  return job::v1::DeleteReply();
}

}  // namespace freshet
