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
  // Trainer that may take the place of a lost one; "" for none.
  std::string other_trainer;
};

// What a change of assignments leads to, besides the record.
struct AssignmentChange {
  std::vector<std::string> revoke;  // "NAME#EPOCH" of workers that are gone: their leases return
  struct Note {
    Severity severity = Severity::kInfo;
    std::string kind;
    std::string text;
  };
  std::vector<Note> notes;  // for the job's events
};

// Brings the assignments of an active job's record in line with the workers there are:
// - all rollouts of its pool, all reward workers, and, for a job with an environment, all
//   environment workers that are connected and not draining get one;
// - a worker that is lost, has left, or came back under another epoch loses its own;
// - the trainer's place is kept: a process that comes back goes on with its assignment, another
//   process of the same name gets a new one and recovers from its checkpoint.
// Pure. The record is changed; nothing is stored.
AssignmentChange PlanAssignments(JobRecord& record, const std::vector<Member>& workers,
                                 const AssignmentRules& rules, absl::Time now);

// The assignment of a role's first worker in the record; null without one.
const Assignment* FindAssignment(const JobRecord& record, cluster::v1::Role role);
const Member* FindMember(const std::vector<Member>& workers, const std::string& name);

}  // namespace freshet

#endif  // FRESHET_CONTROLLER_JOBS_PLAN_ASSIGNMENT_PLAN_H_
