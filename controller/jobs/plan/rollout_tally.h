#ifndef FRESHET_CONTROLLER_JOBS_PLAN_ROLLOUT_TALLY_H_
#define FRESHET_CONTROLLER_JOBS_PLAN_ROLLOUT_TALLY_H_

#include <map>
#include <string>

#include "freshet/cluster/v1/worker_service.pb.h"

namespace freshet {

// Total work of all rollouts of a job, summed from each assignment's reported totals. A new
// leader's tally starts with the totals of the assignments in force. Not thread-safe.
class RolloutTally {
 public:
  // `totals`: newest totals of an assignment; they never decrease.
  void Take(const std::string& assignment, const cluster::v1::RolloutTotals& totals);
  // Forgets an ended assignment; its work stays in the sum.
  void Forget(const std::string& assignment) { known_.erase(assignment); }
  const std::map<std::string, cluster::v1::RolloutTotals>& known() const { return known_; }
  const cluster::v1::RolloutTotals& sum() const { return sum_; }

 private:
  std::map<std::string, cluster::v1::RolloutTotals> known_;  // by assignment
  cluster::v1::RolloutTotals sum_;
};

}  // namespace freshet

#endif  // FRESHET_CONTROLLER_JOBS_PLAN_ROLLOUT_TALLY_H_
