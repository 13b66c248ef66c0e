#ifndef FRESHET_TRAINER_LOOP_STEP_REPORT_H_
#define FRESHET_TRAINER_LOOP_STEP_REPORT_H_

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "datastore/trajectory_store.h"
#include "runlog/samples_log.h"
#include "runlog/step_metrics.h"
#include "trainer/loop/trainer_loop.h"

namespace freshet {

// stop, length or none.
const char* FinishName(FinishReason reason);

// Token-weighted ages of a batch's loss-bearing tokens, in versions. Replayed samples are apart.
struct StalenessSummary {
  std::map<int64_t, int64_t> tokens;  // age -> tokens
  double mean = 0;
  double p50 = 0;
  int64_t max = 0;
  int64_t samples_replayed = 0;
  int64_t replay_age_max = 0;
};
// `train_version` is the version that the step started from.
StalenessSummary SummarizeStaleness(const std::vector<TrainGroup>& groups, int64_t train_version);

// Metrics of a finished step: rewards, lengths, loss, staleness, and what happened to groups and
// what the rollouts did between two store readings. step_seconds and wall_seconds stay 0. kl_ref is
// set iff `has_reference`, and rewards of tasks iff `has_tasks`. Pure.
StepMetrics SummarizeStep(const FinishedStep& report, const StoreStats& before,
                          const StoreStats& now, bool has_reference, bool has_tasks);

// The first `most` samples of the step as rows of samples.jsonl. `decode` converts response tokens
// to text.
std::vector<SampleRow> SampleRows(
    const FinishedStep& report, int64_t most,
    const std::function<std::string(const std::vector<int32_t>&)>& decode);

}  // namespace freshet

#endif  // FRESHET_TRAINER_LOOP_STEP_REPORT_H_
