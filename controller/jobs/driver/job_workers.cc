#include "controller/jobs/driver/job_workers.h"

#include <algorithm>
#include <utility>

#include "base/proto_time.h"
#include "base/str_cat.h"

namespace freshet {
namespace {

using cluster::v1::AssignmentStatus;

const AssignmentStatus* FindStatus(const Member& member, const std::string& id) {
  for (const AssignmentStatus& status : member.status.assignments()) {
    if (status.assignment_id() == id) return &status;
  }
  return nullptr;
}

// The worker if it is alive and connected in the assignment's epoch, else null.
const Member* PresentMember(const std::vector<Member>& workers, const Assignment& assignment) {
  const Member* member = FindMember(workers, assignment.worker());
  if (member == nullptr || member->record.lost() || !member->connected ||
      member->record.epoch() != assignment.epoch()) {
    return nullptr;
  }
  return member;
}

weights::v1::Member ToMember(const Member& member, const Assignment& assignment) {
  weights::v1::Member proto;
  proto.set_work(assignment.id());
  proto.set_worker(member.record.name());
  proto.set_address(member.record.address());
  proto.set_site(member.record.site());
  return proto;
}

}  // namespace

WorkersReport JobWorkers::Inspect(const JobRecord& record, const std::vector<Member>& workers,
                                  int64_t committed, absl::Time now) {
  if (committed > committed_) {
    committed_ = committed;
    work_failures_.OnStep();
  }
  for (const Assignment& assignment : record.assignments()) {
    work_failures_.OnWorker(assignment.role(), assignment.worker(), now);
  }
  WorkersReport report;
  for (const Assignment& assignment : record.assignments()) {
    const Member* member = PresentMember(workers, assignment);
    if (member != nullptr) {
      InspectAssignment(assignment, *member, now, report);
    } else if (assignment.role() == cluster::v1::ROLE_TRAINER) {
      report.trainer_lost =
          assignment.epoch() != 0
              ? StrCat("trainer ", assignment.worker(), " has not reconnected yet")
              : StrCat("trainer ", assignment.worker(), " is lost since ",
                       absl::FormatDuration(
                           absl::Trunc(now - FromTimestamp(assignment.since()), absl::Seconds(1))));
    }
  }
  std::set<std::string> in_force;
  for (const Assignment& assignment : record.assignments()) in_force.insert(assignment.id());
  std::erase_if(failures_,
                [&in_force](const auto& entry) { return !in_force.contains(entry.first); });
  return report;
}

void JobWorkers::InspectAssignment(const Assignment& assignment, const Member& member,
                                   absl::Time now, WorkersReport& report) {
  const AssignmentStatus* status = FindStatus(member, assignment.id());
  if (status != nullptr && status->state() == AssignmentStatus::STATE_FAILED) {
    OnFailed(assignment, *status, now, report);
  }
  const bool running = status != nullptr && status->state() == AssignmentStatus::STATE_RUNNING;
  switch (assignment.role()) {
    case cluster::v1::ROLE_TRAINER:
      ++report.trainers;
      report.trainer_address = member.record.address();
      report.trainer_sequence = member.status.sequence();
      report.trainer_lists_work = status != nullptr;
      if (status == nullptr) return;
      report.trainer_running = running;
      report.trainer_busy = member.status.busy_ratio();
      report.trainer_done = status->state() == AssignmentStatus::STATE_DONE;
      report.ranks.assign(status->ranks().begin(), status->ranks().end());
      report.trainer_waits = status->state() == AssignmentStatus::STATE_FAILED
                                 ? StrCat("failed: ", status->error())
                                 : status->waits_for();
      return;
    case cluster::v1::ROLE_ROLLOUT:
      ++report.rollouts;
      if (status != nullptr && report.rollout_waits.empty() && !status->waits_for().empty()) {
        report.rollout_waits = StrCat("rollout ", assignment.worker(), ": ", status->waits_for());
      }
      if (status != nullptr) {
        const absl::Duration silence = absl::Seconds(status->environment_silent_seconds());
        if (silence > report.env_silence) {
          report.env_silence = silence;
          report.env_waits = StrCat("rollout ", assignment.worker(), ": ", status->waits_for());
        }
      }
      if (running && status->has_policy()) {
        report.evaluators.push_back({member.record.name(),
                                     member.record.epoch(),
                                     assignment.id(),
                                     {status->policy().lineage(), status->policy().version()}});
      }
      return;
    case cluster::v1::ROLE_REWARD:
      ++report.rewards;
      if (status != nullptr && report.reward_waits.empty() && !status->waits_for().empty()) {
        report.reward_waits =
            StrCat("reward worker ", assignment.worker(), ": ", status->waits_for());
      }
      return;
    default:
      ++report.envs;
  }
}

void JobWorkers::OnFailed(const Assignment& assignment, const AssignmentStatus& status,
                          absl::Time now, WorkersReport& report) {
  auto found = failures_.find(assignment.id());
  if (found == failures_.end()) {
    FailureDecision decision =
        work_failures_.Add({assignment.role(), assignment.worker(),
                            static_cast<absl::StatusCode>(status.error_code()), status.error()},
                           now);
    report.failed.push_back(assignment.role());
    const absl::Time retry_at = now + decision.pause;
    found = failures_.emplace(assignment.id(), Failure{std::move(decision), retry_at}).first;
  }
  const auto& [decision, retry_at] = found->second;
  if (decision.ends_job) {
    report.fatal = decision.reason;
    return;
  }
  report.errors[assignment.role()] = decision.reason;
  if (now < retry_at) return;
  // Consecutive failures are reported at powers of two: 1, 2, 4, ...
  const bool told = (decision.in_row & (decision.in_row - 1)) == 0;
  report.replace[assignment.id()] = told ? decision.reason : "";
}

std::shared_ptr<const cluster::v1::Members> JobWorkers::MakeMembers(
    const JobRecord& record, const std::vector<Member>& workers) {
  auto members = std::make_shared<cluster::v1::Members>();
  for (const Assignment& assignment : record.assignments()) {
    const Member* member = FindMember(workers, assignment.worker());
    if (member == nullptr || member->record.lost() ||
        member->record.epoch() != assignment.epoch()) {
      continue;
    }
    if (assignment.role() == cluster::v1::ROLE_ROLLOUT)
      *members->add_rollouts() = ToMember(*member, assignment);
    if (assignment.role() == cluster::v1::ROLE_TRAINER)
      *members->mutable_trainer() = ToMember(*member, assignment);
    if (assignment.role() == cluster::v1::ROLE_ENV)
      *members->add_environments() = ToMember(*member, assignment);
  }
  const std::string text = members->SerializeAsString();
  if (members_ == nullptr || text != members_text_) {
    members_text_ = text;
    members->set_revision(++revision_);
    members_ = std::move(members);
  }
  return members_;
}

void JobWorkers::Reserve(const JobRecord& record) {
  std::vector<DesiredAssignment> desired;
  for (const Assignment& assignment : record.assignments()) {
    desired.push_back({assignment.id(), assignment.worker(), assignment.epoch(), nullptr, false,
                       nullptr, assignment.role() == cluster::v1::ROLE_TRAINER});
  }
  hub_.SetDesired(job_, std::move(desired));
}

void JobWorkers::Publish(const JobRecord& record, const std::vector<Member>& workers,
                         std::shared_ptr<const cluster::v1::Assign> base, bool paused,
                         bool with_trainer) {
  const auto members = MakeMembers(record, workers);
  std::string signature = StrCat(members->revision(), paused ? " paused" : "");
  std::vector<DesiredAssignment> desired;
  for (const Assignment& assignment : record.assignments()) {
    const bool trainer = assignment.role() == cluster::v1::ROLE_TRAINER;
    if (trainer && !with_trainer) continue;
    signature += StrCat(" ", assignment.id(), "#", assignment.epoch());
    desired.push_back(
        {assignment.id(), assignment.worker(), assignment.epoch(), base, paused, members, trainer});
  }
  if (signature == published_) return;
  published_ = std::move(signature);
  hub_.SetDesired(job_, std::move(desired));
}

}  // namespace freshet
