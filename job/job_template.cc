#include "job/job_explain.h"

namespace freshet {

std::string InitJobTemplate() {
  return R"yaml(# A Freshet job. `freshet validate FILE` checks it, `freshet explain KEY`
# tells more about a key, `freshet local FILE` runs it, and `--set trainer.steps=10` overrides
# any key.
# Lines that start with "# " and a key show the default, or another choice.

name: my-job                        # names the run folder
seed: 1

model:
  init: random                      # from scratch, or instead of init and config:
  # path: DIR                       # a Hugging Face directory
  dtype: fp32                       # fp32 | bf16
  config:
    model_type: llama
    hidden_size: 128
    num_hidden_layers: 3
    num_attention_heads: 4
    intermediate_size: 512
    max_position_embeddings: 16     # longest prompt and completion together, in tokens

tokenizer:                          # not needed with model.path
  type: char                        # one token per character, plus an end token
  alphabet: "0123456789+="

dataset:
  type: arithmetic                  # "12+34=" -> "046"; others: copy | template | jsonl
  operands: 2
  digits: 2
  train_rows: 8000
  # type: jsonl                     # rows of a file, prompt filled from their fields
  # path: train.jsonl
  # prompt: "{question}"
  # answer: answer                  # field with the gold answer

group_size: 8                       # G: samples of one prompt
prompts_per_step: 64                # B: groups in one training step

rollout:
  max_new_tokens: 4
  temperature: 1.0
  top_p: 1.0
  # top_k: 0                        # 0: off

staleness:
  max: 2                            # eta: a token is trained on at most so many versions later
  policy: wait                      # wait | drop | requeue | mask

reward:                             # the sum of the components, each times its weight
  timeout_ms: 1000
  components:
    exact: {type: exact_match, weight: 1.0}
    # number: {type: numeric}       # compares numbers, also after "####"
    # polite: {type: contains, text: please, min_count: 1}
    # form: {type: regex, pattern: "^[0-9]+$"}
    # brief: {type: length, max_tokens: 100, margin_tokens: 50}
    # mine: {type: grpc, address: "localhost:9000"}  # a reward service of your own
    # game: {type: environment}     # what the environment gives

# environment:                      # several turns, instead of one completion
#   type: guess_number              # guess_number | calculator | grpc with address
#   max_turns: 8

loss:
  preset: grpo                      # the other keys override what the preset says
  anchor: proximal
  clip: {low: 0.2, high: 0.28}
  correction: {kind: tis, cap: 2.0} # for samples of older versions

warmup:
  sft: {steps: 250, batch_size: 128, learning_rate: 1.0e-3}  # on gold answers, before version 0

trainer:
  steps: 140                        # training steps; each makes one policy version
  minibatches_per_step: 1
  max_tokens_per_microbatch: 8192

optimizer:
  learning_rate: 3.0e-4
  schedule: constant                # constant | linear | cosine
  # warmup_steps: 0
  grad_clip_norm: 1.0

weight_sync: {transport: auto, every_steps: 1, kv: keep}

checkpoint:
  every_steps: 20
  keep_last: 2
  # keep_every: 0                   # and versions that are multiples of it; 0: none
  # keep_best: 0                    # and the best of the first evaluation set
  # dtype: fp32                     # fp32 | bf16

eval:                               # leave it out for no evaluation
  name: heldout
  every_steps: 20
  rows: 512
  temperature: 0.0
)yaml";
}

}  // namespace freshet
