#!/usr/bin/env python3
"""transformers as a peer of rollout.py, in its own loop with a cache; of bf16 and fp32 in the one in which it decodes
faster here. Protocol: serve.py."""
import serve

options = serve.arguments(__doc__)


def load():
    import torch
    import transformers
    torch.set_num_threads(options.threads)

    def open_model(dtype):
        return transformers.AutoModelForCausalLM.from_pretrained(options.model, dtype=dtype, local_files_only=True).eval()

    def step_seconds(model):
        ids = torch.ones((8, 1), dtype=torch.long)
        with torch.inference_mode():
            model(ids)
            watch = serve.Stopwatch()
            model(ids)
            return watch.seconds()

    models = [open_model(torch.bfloat16), open_model(torch.float32)]
    return min(models, key=step_seconds)


def sample(logits):
    """Tokens and their log-probs."""
    logprobs = logits.float().log_softmax(-1)
    ids = logprobs.exp().multinomial(1)
    return ids, logprobs.gather(-1, ids)


def decode(model, groups, samples, prompt, generate, limit_s):
    import torch
    # Prompts are computed once per group, as long as they are not what is measured.
    ids = torch.tensor(serve.prompts(groups, prompt, model.config.vocab_size))
    with torch.inference_mode():
        output = model(ids, use_cache=True, logits_to_keep=1)
        cache = output.past_key_values
        cache.batch_repeat_interleave(samples)
        ids, _ = sample(output.logits[:, -1].repeat_interleave(samples, 0))
        watch, steps = serve.Stopwatch(limit_s), 0
        while steps < generate - 1 and not watch.expired():
            output = model(ids, past_key_values=cache, use_cache=True)
            ids, _ = sample(output.logits[:, -1])
            steps += 1
    return {"tokens": steps * groups * samples, "seconds": watch.seconds(), "generate": steps + 1, "dtype": dtype(model)}


def prefill(model, groups, prompt, limit_s):
    import torch
    watch, done = serve.Stopwatch(limit_s), 0
    with torch.inference_mode():
        for ids in serve.prompts(groups, prompt, model.config.vocab_size):
            model(torch.tensor([ids]), use_cache=True, logits_to_keep=1)
            done += 1
            if watch.expired():
                break
    return {"tokens": done * prompt, "seconds": watch.seconds(), "dtype": dtype(model)}


def score(model, ids):
    import torch
    with torch.inference_mode():
        logprobs = model(torch.tensor([ids])).logits[0].float().log_softmax(-1)
    return {"logprobs": logprobs[:-1].gather(-1, torch.tensor(ids[1:])[:, None])[:, 0].tolist()}


def dtype(model):
    return str(model.dtype).removeprefix("torch.")


if __name__ == "__main__":
    serve.serve(load, decode=decode, prefill=prefill, score=score)
