#ifndef FRESHET_TRAINER_LOOP_TRAINER_SETUP_H_
#define FRESHET_TRAINER_LOOP_TRAINER_SETUP_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "freshet/job/v1/job_spec.pb.h"
#include "job/loss_spec.h"
#include "model/dtype.h"
#include "model/model_config.h"
#include "runlog/step_metrics.h"
#include "trainer/checkpoint/checkpoint_score.h"
#include "trainer/learner/learner_memory.h"
#include "trainer/learner/learning_rate.h"
#include "trainer/learner/policy_learner.h"
#include "trainer/loop/trainer_loop.h"

namespace freshet {

// Derives a trainer's configuration from a resolved job. All functions are pure and thread-safe.

LearningRateSchedule MakeSchedule(const job::v1::JobSpec& spec);

// Where the job's trainer computes, as in OpenDevice. The CPU for several ranks with `auto`, for
// jobs that train nothing, and for jobs accepted by an older version, which name no device.
std::string DeviceOfTrainer(const job::v1::JobSpec& spec);
// Number of copies of the weights on the trainer's GPU (weights/cuda/device_copies.h): one in use,
// one being written and, with `eval`, one kept for evaluations. 0 unless the transport is cuda_ipc.
int GpuCopies(const job::v1::JobSpec& spec);

// Whether every rank broadcasts its shard of the weights to engines.
bool SendsShards(const job::v1::JobSpec& spec);

// `processors`: of a job that sets no number of threads; its ranks share them.
PolicyLearnerOptions MakeLearnerOptions(const job::v1::JobSpec& spec, const ModelConfig& model,
                                        const LossSpec& loss, int processors = 1);

// What the trainer of a job needs, or rank 0 of several, for batches of this shape: that of a
// PolicyLearner with these options, or of a FrozenLearner.
MemoryPlan PlanTrainer(const job::v1::JobSpec& spec, const PolicyLearnerOptions& options,
                       const BatchShape& batch);

// The largest minibatch of a rank: prompts of `longest_prompt` tokens with responses of
// max_new_tokens.
BatchShape LargestBatch(const job::v1::JobSpec& spec, int64_t longest_prompt);

// Of the weights in checkpoints, for ModelTextFiles.
Dtype CheckpointDtype(const job::v1::JobSpec& spec);

// The job-dependent part of a loop's options; `job` is its id. The caller adds what it loaded, and
// the checkpoints' folder and text files (ModelTextFiles).
TrainerLoopOptions MakeLoopOptions(const job::v1::JobSpec& spec, const std::string& job,
                                   bool has_reference);

// The score that an evaluation gives to a checkpoint of its job; nothing if it is of another set
// than the first, or not finite.
std::optional<CheckpointScore> ScoreOf(const EvalMetrics& metrics, const job::v1::JobSpec& spec);

}  // namespace freshet

#endif  // FRESHET_TRAINER_LOOP_TRAINER_SETUP_H_
