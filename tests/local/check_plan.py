#!/usr/bin/env python3
"""Compares the memory of `freshet plan` with the peak of `freshet local` for five shapes. The
checkpoints are written from copies.

usage: check_plan.py PROGRAMS [SHAPE]
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

MAX_RELATIVE_DIFFERENCE = 0.15
MIB = 1 << 20
# Of a shape. The plan counts what can exist at the same time, which not every run of a busy machine does.
MAX_RUNS = 4
JOB = """
name: plan
seed: 1
model:
  init: random
  dtype: {dtype}
  config: {{model_type: llama, max_position_embeddings: 1024, {config}}}
tokenizer: {{type: char, alphabet: "0123456789={more}"}}
dataset: {{type: copy, symbols: "0123456789", length: 8, train_rows: 800}}
group_size: {group}
prompts_per_step: 4
rollout: {{max_new_tokens: {tokens}, min_new_tokens: {tokens}, threads: 2, kv_cache_bytes: {cache}, max_batch_tokens: {batch}}}
staleness: {{max: {staleness}}}
reward: {{components: {{exact: {{type: exact_match}}}}}}
loss: {{preset: grpo, kl: {{kind: {kl}{coef}}}}}
trainer: {{steps: 2, threads: 2, max_tokens_per_microbatch: 16384, activation_checkpointing: {checkpointing}}}
optimizer: {{learning_rate: 1.0e-5}}
checkpoint: {{every_steps: 1}}
"""
DEFAULTS = dict(more="", batch=2048, staleness=0)
# Gradients of a large vocabulary, tied. A step begins while a checkpoint is written from its copy.
VOCABULARY = dict(kl="none", coef="", group=8, tokens=16, cache=32 * MIB, batch=512, staleness=1,
                  checkpointing="false", more="".join(chr(0x4E00 + i) for i in range(20000)),
                  config="hidden_size: 1024, num_hidden_layers: 2, num_attention_heads: 8, "
                         "intermediate_size: 1024, tie_word_embeddings: true")
SHAPES = {
    # Weights, gradients and moments.
    "state": dict(dtype="bf16", kl="k3", coef=", coef: 0.01", group=8, tokens=16, cache=32 * MIB, checkpointing="false",
                  config="hidden_size: 512, num_hidden_layers: 12, num_attention_heads: 8, "
                         "num_key_value_heads: 4, intermediate_size: 1536"),
    # Activations of long responses, and the KV cache.
    "activations": dict(dtype="fp32", kl="none", coef="", group=8, tokens=480, cache=96 * MIB,
                        checkpointing="false",
                        config="hidden_size: 128, num_hidden_layers: 8, num_attention_heads: 4, "
                               "intermediate_size: 512"),
    # Activation checkpointing.
    "checkpointing": dict(dtype="bf16", kl="none", coef="", group=8, tokens=480, cache=144 * MIB,
                          checkpointing="true",
                          config="hidden_size: 256, num_hidden_layers: 16, num_attention_heads: 4, "
                                 "num_key_value_heads: 2, intermediate_size: 768"),
    "vocabulary": dict(dtype="bf16", **VOCABULARY),
    "vocabulary-fp32": dict(dtype="fp32", **VOCABULARY),
}


def peak_bytes(arguments, folder):
    """Most resident memory of a program that must succeed."""
    log = folder / "log"
    with log.open("wb") as out:
        process = subprocess.Popen(arguments, cwd=folder, stdout=out, stderr=subprocess.STDOUT)
        _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if "event=snapshot_lent" in log.read_text():
        sys.exit("this machine has too little memory for copies of the weights")
    if process.returncode != 0:
        sys.exit(f"{arguments}: exit {process.returncode}\n{log.read_text()[-2000:]}")
    return usage.ru_maxrss * 1024


def main():
    programs = pathlib.Path(sys.argv[1]).resolve()
    failed = 0
    for name in sys.argv[2:] or SHAPES:
        with tempfile.TemporaryDirectory() as text:
            folder = pathlib.Path(text)
            (folder / "job.yaml").write_text(JOB.format(**DEFAULTS | SHAPES[name]))
            command = [str(programs / "freshet"), "plan", "job.yaml", "--json"]
            plan = json.loads(subprocess.run(command, cwd=folder, check=True,
                                             stdout=subprocess.PIPE).stdout)["local"]
            planned = plan["bytes"] + plan["checkpoint_copy_bytes"]
            peak = 0
            for run in range(MAX_RUNS):
                command = [str(programs / "freshet"), "local", "job.yaml", "--run-dir", f"run-{run}"]
                peak = max(peak, peak_bytes(command, folder))
                if planned / peak - 1 <= MAX_RELATIVE_DIFFERENCE:
                    break
        difference = planned / peak - 1
        failed += abs(difference) > MAX_RELATIVE_DIFFERENCE
        print(f"{name}: planned {planned / MIB:.0f} MiB, peak {peak / MIB:.0f} MiB, "
              f"{100 * difference:+.1f} %")
        for item in plan["items"]:
            print(f"  {item['name']:20} {item['bytes'] / MIB:8.1f}")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
