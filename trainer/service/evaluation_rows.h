#ifndef FRESHET_TRAINER_SERVICE_EVALUATION_ROWS_H_
#define FRESHET_TRAINER_SERVICE_EVALUATION_ROWS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "datastore/event_log.h"
#include "freshet/job/v1/job_spec.pb.h"
#include "trainer/checkpoint/checkpoint_score.h"

namespace freshet {

// Reads the evaluations of a job's first set from its events, where the controller writes them.
// Not thread-safe.
class EvaluationRows {
 public:
  // `events` must outlive this object.
  EvaluationRows(EventLog& events, const std::string& job, const job::v1::JobSpec& spec);

  // Those since the last call, or since the job's oldest event. While the datastore is unreachable
  // it returns fewer, and the others later.
  std::vector<CheckpointScore> Next();

 private:
  EventLog& events_;
  const std::string stream_;
  const job::v1::JobSpec spec_;
  int64_t cursor_ = 0;
};

}  // namespace freshet

#endif  // FRESHET_TRAINER_SERVICE_EVALUATION_ROWS_H_
