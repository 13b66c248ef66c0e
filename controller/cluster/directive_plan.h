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

// What a job wants of one worker.
struct DesiredAssignment {
  std::string id;
  std::string worker;
  int64_t epoch = 0;
  // The work, without id, paused and members. Null: the assignment is in force and its content is
  // not at hand yet (the controller has just taken over): a worker that has it is left alone.
  std::shared_ptr<const cluster::v1::Assign> assign;
  bool paused = false;
  std::shared_ptr<const cluster::v1::Members> members;  // without id; may be null
  // The process may come back under another epoch and go on: until the job has seen that, a worker
  // of that name that has the assignment is left alone.
  bool keeps_place = false;
};

// What one heartbeat stream has told its worker, and what is still to be said so that the worker
// does what is desired. Directives are differences: a new stream begins with what the worker itself
// says it does, so a lost stream costs nothing and a controller that takes over interrupts nobody.
// Pure but for its own state. Confined to one thread at a time.
class DirectivePlan {
 public:
  // `working_on`: the assignments in the first status of the stream.
  explicit DirectivePlan(const std::vector<std::string>& working_on);

  // The next directive, or none when the worker has been told everything. The caller sends it.
  // `desired` are the assignments of this worker. Unassign comes before Assign, so that a worker
  // that has one job at a time is free for the next one.
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
