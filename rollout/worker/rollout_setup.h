#ifndef FRESHET_ROLLOUT_WORKER_ROLLOUT_SETUP_H_
#define FRESHET_ROLLOUT_WORKER_ROLLOUT_SETUP_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "base/container_limits.h"
#include "freshet/job/v1/job_spec.pb.h"
#include "model/model_config.h"
#include "rollout/engine/native_engine.h"
#include "rollout/engine/sampling.h"
#include "rollout/worker/agent_runner.h"
#include "rollout/worker/episode_runner.h"
#include "rollout/worker/rollout_worker.h"
#include "text/tokenizer.h"

namespace freshet {

// Derives a rollout's configuration from a resolved job. All functions are pure and thread-safe.

// Sampling of training samples. Stop tokens are those of model, tokenizer and job. `tokenizer` must
// outlive the result.
SamplingParams MakeSampling(const job::v1::JobSpec& spec, const ModelConfig& model,
                            const Tokenizer& tokenizer);
// Sampling of an evaluation set with all settings filled in (EvalSets). What the set does not have,
// such as penalties and stop tokens, is as in training.
SamplingParams MakeEvalSampling(const job::v1::JobSpec& spec, const job::v1::EvalSet& set,
                                const ModelConfig& model, const Tokenizer& tokenizer);
// The prompt of held-out row `row`. `attributes` are the row's fields; `prompt` is added. Errors:
// see EncodePrompt.
absl::StatusOr<std::shared_ptr<const Prompt>> MakeHeldOutPrompt(
    const job::v1::JobSpec& spec, const Tokenizer& tokenizer, int64_t row, const std::string& text,
    std::map<std::string, std::string> attributes);
// Seed of evaluations: a separate stream, the same for every version.
uint64_t EvalSeed(const job::v1::JobSpec& spec);

// What the job leaves open depends on the limits of the process's container.
NativeEngineOptions MakeEngineOptions(const job::v1::JobSpec& spec,
                                      const ContainerLimits& limits = {});

// Episode options of a job with an environment. A user's own environment (type grpc) is requested
// by the name "".
EpisodeOptions MakeEpisodeOptions(const job::v1::JobSpec& spec);
// Whether the job's samples are episodes of an agent.
bool HasAgent(const job::v1::JobSpec& spec);
// Options of a job with an agent, which reaches the endpoint at `base_url`.
AgentOptions MakeAgentOptions(const job::v1::JobSpec& spec, const std::string& base_url);
// Special tokens in an environment's text are encoded like any other text. `tokenizer` must outlive
// the result.
EpisodeText MakeEpisodeText(const job::v1::JobSpec& spec, const Tokenizer& tokenizer);

// The job-dependent part of a worker's options. `longest_prompt_tokens` is the maximum over its
// rows.
RolloutOptions MakeRolloutOptions(const job::v1::JobSpec& spec, const SamplingParams& sampling,
                                  int64_t longest_prompt_tokens);

// Value of most_engine_failures if a new engine is created after failures. It is high enough that a
// prompt on which the engine fails is given up first.
int MostEngineFailures(const job::v1::JobSpec& spec);

}  // namespace freshet

#endif  // FRESHET_ROLLOUT_WORKER_ROLLOUT_SETUP_H_
