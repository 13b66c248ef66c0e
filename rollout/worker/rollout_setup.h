#ifndef FRESHET_ROLLOUT_WORKER_ROLLOUT_SETUP_H_
#define FRESHET_ROLLOUT_WORKER_ROLLOUT_SETUP_H_

#include <cstdint>

#include "freshet/job/v1/job_spec.pb.h"
#include "model/model_config.h"
#include "model/tokenizer.h"
#include "rollout/engine/native_engine.h"
#include "rollout/engine/sampling.h"
#include "rollout/worker/episode_runner.h"
#include "rollout/worker/rollout_worker.h"

namespace freshet {

// What a rollout is made from, out of a resolved job. All functions are pure and thread-safe.

// How training samples are drawn. Stop tokens: those of model, tokenizer and job.
SamplingParams MakeSampling(const job::v1::JobSpec& spec, const ModelConfig& model,
                            const Tokenizer& tokenizer);
// How answers to the held-out rows are drawn.
SamplingParams MakeEvalSampling(const job::v1::JobSpec& spec, const ModelConfig& model,
                                const Tokenizer& tokenizer);
// Of the random numbers of evaluations: a stream of their own, the same for every version.
uint64_t EvalSeed(const job::v1::JobSpec& spec);

NativeEngineOptions MakeEngineOptions(const job::v1::JobSpec& spec);

// How episodes of a job with an environment are played. A user's own environment (type grpc) is
// asked for by the name "".
EpisodeOptions MakeEpisodeOptions(const job::v1::JobSpec& spec);
// `tokenizer` must outlive the result.
EpisodeText MakeEpisodeText(const Tokenizer& tokenizer);

// The part of a worker's options that a job decides. `longest_prompt_tokens` is that of its rows.
RolloutOptions MakeRolloutOptions(const job::v1::JobSpec& spec, const SamplingParams& sampling,
                                  int64_t longest_prompt_tokens);

// most_engine_failures where a new engine is made: a prompt that the engine fails on is given up
// before.
int MostEngineFailures(const job::v1::JobSpec& spec);

}  // namespace freshet

#endif  // FRESHET_ROLLOUT_WORKER_ROLLOUT_SETUP_H_
