#ifndef FRESHET_CONTROLLER_JOBS_PLAN_ROLLOUT_TALLY_H_
#define FRESHET_CONTROLLER_JOBS_PLAN_ROLLOUT_TALLY_H_

#include <map>
#include <string>

#include "freshet/cluster/v1/worker_service.pb.h"

namespace freshet {

// What all rollouts that worked for a job have done, added up from what each says of its own
// assignment. A new leader's tally begins with what the assignments in force say. Confined to one
// thread.
class RolloutTally {
 public:
  // `totals` of an assignment as of its newest status; those of an assignment only grow.
  void Take(const std::string& assignment, const cluster::v1::RolloutTotals& totals);
  // Forgets an assignment that is over; what it has done stays in the sum.
  void Forget(const std::string& assignment) { known_.erase(assignment); }
  const std::map<std::string, cluster::v1::RolloutTotals>& known() const { return known_; }
  const cluster::v1::RolloutTotals& sum() const { return sum_; }

 private:
  std::map<std::string, cluster::v1::RolloutTotals> known_;  // by assignment
  cluster::v1::RolloutTotals sum_;
};

}  // namespace freshet

#endif  // FRESHET_CONTROLLER_JOBS_PLAN_ROLLOUT_TALLY_H_
