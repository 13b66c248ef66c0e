#!/usr/bin/env python3
"""vLLM as a peer of rollout.py, in this process. Protocol: serve.py."""
import json
import os
import pathlib

import serve

options = serve.arguments(__doc__)
os.environ.update(VLLM_ENABLE_V1_MULTIPROCESSING="0", VLLM_CPU_KVCACHE_SPACE="2", VLLM_LOGGING_LEVEL="WARNING",
                  HF_HUB_OFFLINE="1", VLLM_NO_USAGE_STATS="1", DO_NOT_TRACK="1")
CORES = sorted(os.sched_getaffinity(0))[:options.threads]
os.environ["VLLM_CPU_OMP_THREADS_BIND"] = ",".join(map(str, CORES))  # "auto" leaves one core free
VOCABULARY = json.loads((pathlib.Path(options.model) / "config.json").read_text())["vocab_size"]


def load():
    import vllm
    model = vllm.LLM(options.model, skip_tokenizer_init=True, dtype="bfloat16", enforce_eager=True, max_model_len=4096,
                     seed=1)
    return model.llm_engine


def parameters(**values):
    import vllm
    return vllm.SamplingParams(temperature=1.0, ignore_eos=True, detokenize=False, **values)


numbers = iter(range(1 << 60))


def submit(engine, ids, sampling):
    engine.add_request(str(next(numbers)), {"prompt_token_ids": ids}, sampling)


def decode(engine, groups, samples, prompt, generate, limit_s):
    for ids in serve.prompts(groups, prompt, VOCABULARY):
        for _ in range(samples):
            submit(engine, ids, parameters(max_tokens=generate, logprobs=0))
    running, lengths = groups * samples, {}

    def step():
        for output in engine.step():
            lengths[output.request_id] = len(output.outputs[0].token_ids)

    while len(lengths) < running:
        step()
    first = sum(lengths.values())
    watch = serve.Stopwatch(limit_s)
    while engine.has_unfinished_requests() and not watch.expired():
        step()
    result = {"tokens": sum(lengths.values()) - first, "seconds": watch.seconds(),
              "generate": sum(lengths.values()) / running}
    engine.abort_request(list(lengths))
    while engine.has_unfinished_requests():
        engine.step()
    return result


def prefill(engine, groups, prompt, limit_s):
    watch = serve.Stopwatch(limit_s)
    for ids in serve.prompts(groups, prompt, VOCABULARY):
        submit(engine, ids, parameters(max_tokens=1))
    while engine.has_unfinished_requests():
        engine.step()
    return {"tokens": groups * prompt, "seconds": watch.seconds()}


def score(engine, ids):
    submit(engine, ids, parameters(max_tokens=1, prompt_logprobs=0))
    (output,) = [output for _ in iter(engine.has_unfinished_requests, False) for output in engine.step()]
    return {"logprobs": [row[token].logprob for row, token in zip(output.prompt_logprobs[1:], ids[1:])]}


if __name__ == "__main__":
    serve.serve(load, decode=decode, prefill=prefill, score=score)
