#!/usr/bin/env python3
"""Measures the steps and the memory of a trainer whose ranks divide nothing, the optimizer's state, or the model.

    ranks.py [--rounds 5] [--ranks 2] [--bin build/bin]

Every round runs `freshet local` with each value of trainer.sharding in alternating order: a random bf16 model of 92 M
parameters, whose ranks are processes on this machine with one thread each. Rank 1 shows the memory of a rank, and
`freshet plan` what was planned for it. Writes build/bench/ranks.json, and the table as ranks.md beside it. Exits 1 if a
goal is missed.
"""
import argparse
import contextlib
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE)]
import figures  # noqa: E402

SHARDINGS = ["none", "optimizer", "full"]
GIB = 1 << 30
STEPS = 4
JOB = """
name: ranks
seed: 1
model:
  init: random
  dtype: bf16
  config: {model_type: llama, hidden_size: 768, num_hidden_layers: 12, num_attention_heads: 12, num_key_value_heads: 12,
           intermediate_size: 2304, max_position_embeddings: 256}
tokenizer: {type: char, alphabet: "0123456789="}
dataset: {type: copy, symbols: "0123456789", length: 8, train_rows: 800}
group_size: 8
prompts_per_step: 4
rollout: {max_new_tokens: 64, min_new_tokens: 64}
staleness: {max: 0}
reward: {components: {exact: {type: exact_match}}}
loss: {preset: grpo}
filter: {zero_variance: false}
trainer: {steps: %d, threads: 1, ranks: %d, sharding: %s}
optimizer: {learning_rate: 1.0e-5}
checkpoint: {every_steps: 2}
"""


def children(pid):
    found = []
    with contextlib.suppress(OSError):
        for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
            with contextlib.suppress(OSError):
                found += map(int, (task / "children").read_text().split())
    return found


def peak_bytes(pid):
    """Most resident memory of a process so far; 0 if it is gone."""
    with contextlib.suppress(OSError):
        for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    return 0


def run(binaries, sharding, ranks):
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "job.yaml").write_text(JOB % (STEPS, ranks, sharding))
        plan = json.loads(subprocess.run([binaries / "freshet", "plan", "job.yaml", "--json"], cwd=folder, check=True,
                                         stdout=subprocess.PIPE).stdout)["trainer"]
        planned = sum(item["bytes"] for item in plan["items"]
                      if item["name"] in ("other ranks", "activations of other ranks"))
        if sharding != "none":  # a rank copies its part of the state for a checkpoint
            planned += plan["checkpoint_copy_bytes"] * (ranks - 1) / ranks
        with (folder / "log").open("wb") as log:
            process = subprocess.Popen([binaries / "freshet", "local", "job.yaml", "--run-dir", "run"], cwd=folder,
                                       stdout=log, stderr=subprocess.STDOUT)
            peak = 0
            while process.poll() is None:
                peak = max([peak, *map(peak_bytes, children(process.pid))])
                time.sleep(0.05)
        if process.returncode != 0:
            sys.exit(f"exit {process.returncode}\n{(folder / 'log').read_text()[-3000:]}")
        rows = map(json.loads, (folder / "run" / "metrics.jsonl").read_text().splitlines())
        steps = [row for row in rows if row.get("step", 0) > 1 and "train_seconds" in row]
    return {"train_seconds": statistics.median(row["train_seconds"] for row in steps),
            "optimizer_seconds": statistics.median(row["optimizer_seconds"] for row in steps),
            "checkpoint_seconds": max(row["checkpoint_seconds"] for row in steps),
            "rank_bytes": peak, "planned_bytes": planned / (ranks - 1)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--bin", default="build/bin")
    options = parser.parse_args()
    binaries = pathlib.Path(options.bin).resolve()
    results = {sharding: [] for sharding in SHARDINGS}
    for number in range(options.rounds):
        for sharding in SHARDINGS if number % 2 == 0 else reversed(SHARDINGS):
            results[sharding].append(run(binaries, sharding, options.ranks))
            print(f"# {sharding}: {results[sharding][-1]}", flush=True)

    def median(sharding, key):
        return statistics.median(result[key] for result in results[sharding])

    rows = []
    for sharding in SHARDINGS:
        step, without = median(sharding, "train_seconds"), median("none", "train_seconds")
        rows.append({"name": f"{sharding}: training step", "ours": step, "peer": without, "peer_name": "none", "unit": "s",
                     "ratio": without / step})
        stall = median(sharding, "checkpoint_seconds")
        rows.append(figures.bound(f"{sharding}: stall by a checkpoint", stall, 0.05 * step, "s", True))
        peak, whole = median(sharding, "rank_bytes"), median("none", "rank_bytes")
        rows.append({"name": f"{sharding}: peak memory of a rank", "ours": peak / GIB, "peer": whole / GIB,
                     "peer_name": "none", "unit": "GiB", "ratio": whole / peak})
        planned = median(sharding, "planned_bytes")
        rows.append(figures.bound(f"{sharding}: difference of the plan", 100 * abs(planned / peak - 1), 15, "%", True))
    path = pathlib.Path("build/bench/ranks.json")
    missed = figures.report(rows, path, results)
    path.with_suffix(".md").write_text(figures.markdown(rows))
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
