#ifndef FRESHET_CONTROLLER_JOBS_PLAN_ASSIGNMENT_PLAN_H_
#define FRESHET_CONTROLLER_JOBS_PLAN_ASSIGNMENT_PLAN_H_

#include <map>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "controller/cluster/membership.h"
#include "controller/jobs/record/job_record.h"

namespace freshet {

struct AssignmentRules {
  // Failed assignments to restart under new ids: id -> text of the notice, "" for none.
  std::map<std::string, std::string> replace;
  // Trainer that may replace a lost one; "" for none.
  std::string other_trainer;
};

// Effects of a change of assignments besides the record.
struct AssignmentChange {
  std::vector<std::string> revoke;  // "NAME#EPOCH" of workers that are gone; their leases return
  struct Note {
    Severity severity = Severity::kInfo;
    std::string kind;
    std::string text;
  };
  std::vector<Note> notes;  // for the job's events
};

// Matches the assignments in an active job's record to the available workers:
// - All connected, non-draining rollouts of its pool with its engine, reward workers and, for a job
//   with an environment, environment workers get one.
// - A worker that is lost, has left, or came back under another epoch loses its assignment.
// - The trainer's place is kept: a process that comes back continues its assignment; another
//   process of the same name gets a new one and recovers from its checkpoint.
// Pure: changes the record, stores nothing.
AssignmentChange PlanAssignments(JobRecord& record, const std::vector<Member>& workers,
                                 const AssignmentRules& rules, absl::Time now);

// The assignment of the first worker with `role`; null if none.
const Assignment* FindAssignment(const JobRecord& record, cluster::v1::Role role);
const Member* FindMember(const std::vector<Member>& workers, const std::string& name);

}  // namespace freshet

#endif  // FRESHET_CONTROLLER_JOBS_PLAN_ASSIGNMENT_PLAN_H_
