#ifndef FRESHET_CONTROLLER_CLUSTER_DIRECTIVE_PLAN_H_
#define FRESHET_CONTROLLER_CLUSTER_DIRECTIVE_PLAN_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "freshet/cluster/v1/worker_service.pb.h"

namespace freshet {

// Work that a job wants one worker to do.
struct DesiredAssignment {
  std::string id;
  std::string worker;
  int64_t epoch = 0;
  // The work, without id, paused and members. Null: the assignment is in force but its content is
  // not known yet, because the controller has just taken over; a worker that has it is left alone.
  std::shared_ptr<const cluster::v1::Assign> assign;
  bool paused = false;
  std::shared_ptr<const cluster::v1::Members> members;  // without id; may be null
  // The process may come back under another epoch and continue. Until the job has seen that, a
  // worker of this name that has the assignment is left alone.
  bool keeps_place = false;
};

// Tracks what one heartbeat stream has told its worker and computes the next directive. Directives
// are differences. A new stream starts from what the worker reports, so a lost stream costs nothing
// and a new leader interrupts no work. No I/O. Not thread-safe.
class DirectivePlan {
 public:
  // `working_on`: the assignments in the first status of the stream.
  explicit DirectivePlan(const std::vector<std::string>& working_on);

  // The next directive to send, or none if the worker is up to date. `desired` are the assignments
  // of this worker. Unassign comes before Assign, because a worker may be able to run only one job
  // at a time.
  std::optional<cluster::v1::Directive> Next(const std::vector<DesiredAssignment>& desired);

 private:
  struct Told {
    std::optional<bool> paused;
    int64_t members_revision = -1;
  };
  std::map<std::string, Told> told_;  // by assignment id
};

}  // namespace freshet

#endif  // FRESHET_CONTROLLER_CLUSTER_DIRECTIVE_PLAN_H_
