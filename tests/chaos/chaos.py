#!/usr/bin/env python3
"""Kills, stops and cuts off the members of a real cluster by a seeded schedule, and has the checker decide.

    chaos.py [--seeds N] [--first-seed K] [--jobs J] [--keep] [--bin DIR]

Every seed is one run of redis-server, two controllers, two rollouts, reward and trainer as processes of their
own. Engine and model only take time (tests/simulation); everything else is the real thing, with the controllers'
periods and deadlines scaled by 0.1. The last line is `N passed, N failed`; the evidence of a failed run is kept.
"""
import argparse
import concurrent.futures
import json
import os
import shutil
import sys
import tempfile
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import checker  # noqa: E402
import schedule  # noqa: E402
from cluster import Cluster, Profile  # noqa: E402

STEPS, GROUPS, SIZE, ETA = 16, 4, 2, 2
RUN_SECONDS = 60  # that a run may take before it counts as stuck
JOB = f"""
name: chaos
seed: 1
model: {{init: random, config: {{model_type: llama, hidden_size: 16, num_hidden_layers: 1, num_attention_heads: 2,
  intermediate_size: 32, max_position_embeddings: 64}}}}
tokenizer: {{type: char, alphabet: "0123456789+="}}
dataset: {{type: arithmetic, operands: 2, digits: 2, train_rows: 4000}}
group_size: {SIZE}
prompts_per_step: {GROUPS}
rollout: {{max_new_tokens: 40, lease_ttl_ms: 1000}}
staleness: {{max: {ETA}, policy: wait}}
reward: {{timeout_ms: 1000, max_attempts: 100, components: {{length: {{type: length, max_tokens: 40, margin_tokens: 20}}}}}}
loss: {{preset: grpo}}
filter: {{zero_variance: false}}
trainer: {{steps: {STEPS}}}
optimizer: {{learning_rate: 1.0e-4}}
weight_sync: {{timeout_ms: 1000}}
checkpoint: {{every_steps: 4, keep_last: 2}}
"""


def run(name, profile, faults, keep=False, seconds=RUN_SECONDS):
    """One run under `faults`. Returns (violations, summary, folder of the evidence)."""
    folder = tempfile.mkdtemp(prefix=f"freshet-chaos-{name}-")
    cluster = Cluster(folder, profile)
    violations, summary = [], ""
    done = threading.Event()
    storm = schedule.Storm(cluster, faults, done)
    begin = time.monotonic()
    try:
        cluster.start_all()
        cluster.submit("chaos", JOB)
        thread = threading.Thread(target=storm.run)
        thread.start()
        state = cluster.await_end("chaos", seconds)
        done.set()
        thread.join()
        with open(os.path.join(folder, "job.json"), "w") as file:
            json.dump({"eta": ETA, "groups_per_step": GROUPS, "group_size": SIZE, "steps": STEPS, "state": state}, file)
        export = cluster.freshet("ledger", "export", "chaos", os.path.join(folder, "export"))
        if export.returncode != 0:
            raise RuntimeError(f"{state}; ledger export: exit {export.returncode}: {export.stderr.strip()}")
        shutil.copy(os.path.join(folder, "export", "ledger.jsonl"), folder)
        weights = cluster.final_weights("chaos", STEPS) if state == "SUCCEEDED" else ""
        with open(os.path.join(folder, "weights.txt"), "w") as file:
            file.write(weights)
        violations, summary = checker.check(folder)
    except Exception as error:  # the run itself broke down: that is a failure of this seed
        violations.append(f"{type(error).__name__}: {error}")
    finally:
        done.set()
        cluster.stop_all()
    with open(os.path.join(folder, "schedule.json"), "w") as file:
        json.dump(faults, file)
    if not violations and not keep:
        shutil.rmtree(folder, ignore_errors=True)
    summary = f"{time.monotonic() - begin:.2f} s, {storm.inflicted} of {len(faults)} faults, {summary}"
    return violations, summary, folder


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=25)
    parser.add_argument("--first-seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=2, help="runs at the same time")
    parser.add_argument("--keep", action="store_true", help="keep the evidence of good runs too")
    parser.add_argument("--bin", default=os.path.join(HERE, "..", "..", "build", "bin"))
    options = parser.parse_args()
    profile = Profile(os.path.abspath(options.bin))
    passed = failed = 0
    seeds = range(options.first_seed, options.first_seed + options.seeds)
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        results = pool.map(lambda seed: run(seed, profile, schedule.draw(seed), options.keep), seeds)
        for seed, (violations, summary, folder) in zip(seeds, results):
            passed, failed = passed + (not violations), failed + bool(violations)
            print(f"seed {seed}: {'FAILED' if violations else 'ok'}: {summary}", flush=True)
            for violation in violations[:5]:
                print(f"  {violation}")
            if violations or options.keep:
                print(f"  evidence: {folder}", flush=True)
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
