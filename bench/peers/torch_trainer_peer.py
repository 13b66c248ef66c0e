#!/usr/bin/env python3
"""A plain PyTorch loop as a peer of trainer.py: transformers' model, GRPO's loss, gradients over microbatches, fused
AdamW. Variants: padded microbatches, or one sequence at a time without padding; weights in bf16, or in fp32 with bf16
products (autocast), or fp32. Protocol: serve.py."""
import serve
import training_batch

options = serve.arguments(__doc__)


def load():
    import torch
    import transformers
    torch.set_num_threads(options.threads)
    dtype = torch.bfloat16 if options.format == "bf16" else torch.float32
    model = transformers.AutoModelForCausalLM.from_pretrained(options.model, dtype=dtype, local_files_only=True,
                                                              attn_implementation="sdpa").train()
    return model, torch.optim.AdamW(model.parameters(), lr=1e-6, betas=(0.9, 0.95), weight_decay=0, fused=True)


def step(loaded, batch, rows, autocast, group):
    """One training step; `rows` samples are computed at a time, sorted by length."""
    import torch
    model, optimizer = loaded
    samples = training_batch.load(batch)
    for sample, advantage in zip(samples, training_batch.advantages(samples, group)):
        sample["advantage"] = advantage
    samples.sort(key=lambda sample: len(sample["response"]))
    total = training_batch.tokens(samples)
    watch = serve.Stopwatch()
    for first in range(0, len(samples), rows):
        part = samples[first:first + rows]
        ids, mask = training_batch.pad([sample["prompt"] + sample["response"] for sample in part])
        prompt = len(part[0]["prompt"])
        keep = ids.shape[1] - prompt
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            attention = None if mask.all() else mask
            logits = model(ids, attention_mask=attention, use_cache=False, logits_to_keep=keep + 1).logits[:, :-1].float()
        targets = ids[:, prompt:]
        logprobs = logits.gather(-1, targets[..., None])[..., 0] - logits.logsumexp(-1)
        advantages = torch.tensor([sample["advantage"] for sample in part])[:, None]
        ratio = (logprobs - logprobs.detach()).exp()
        loss = -(torch.min(ratio * advantages, ratio.clamp(0.8, 1.2) * advantages) * mask[:, prompt:]).sum() / total
        loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return {"seconds": watch.seconds(), "tokens": total}


if __name__ == "__main__":
    serve.serve(load, step=step)
