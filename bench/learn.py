#!/usr/bin/env python3
"""Trains the examples with several seeds and compares the results with their goals.

Prints one line per figure and writes build/bench/learn.json: rows {name, ours, peer, peer_name,
ratio, unit, goal}. A higher ratio is better; a row must reach its goal. Exits 1 if one does not.
With --full stories is also trained by TRL, with the seeds 1 to 5; this writes
build/bench/stories_trl.json. Without it the rows come from bench/results/stories_trl.json.
Standard library only.
"""
import argparse
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import time

import figures
import stories_trl

ROOT = pathlib.Path(__file__).resolve().parent.parent
FRESHET = ROOT / "build/bin/freshet"


def run(job, seed, run_dir, overrides=()):
    """Trains `job`. Returns (wall seconds, evaluations by policy version, step rows)."""
    shutil.rmtree(run_dir, ignore_errors=True)
    command = [str(FRESHET), "local", str(job), "--run-dir", str(run_dir), "--set", f"seed={seed}"]
    for override in overrides:
        command += ["--set", override]
    start = time.monotonic()
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    wall = time.monotonic() - start
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}: exit code {done.returncode}\n{done.stderr}")
    subprocess.run([str(FRESHET), "ledger", "verify", str(run_dir)], check=True,
                   stdout=subprocess.DEVNULL)
    rows = [json.loads(line) for line in (run_dir / "metrics.jsonl").read_text().splitlines()]
    evaluations = {row["policy_version"]: row for row in rows if "eval_name" in row}
    steps = [row for row in rows if "step" in row]
    return wall, evaluations, steps


def arithmetic(seeds, out):
    walls, first, last = [], [], []
    for seed in seeds:
        wall, evals, _ = run(ROOT / "examples/arithmetic.yaml", seed, out / f"arithmetic-{seed}")
        walls.append(wall)
        first.append(evals[min(evals)]["eval_accuracy"])
        last.append(evals[max(evals)]["eval_accuracy"])
        print(f"arithmetic seed {seed}: {first[-1]:.3f} -> {last[-1]:.3f} in {wall:.1f} s",
              flush=True)
    median = statistics.median
    return [
        figures.bound("arithmetic: exact match after warm-up (at most)", median(first), 0.55, "share", True),
        figures.bound("arithmetic: exact match at the end", median(last), 0.92, "share"),
        figures.bound("arithmetic: wall time", median(walls), 120.0, "s", True),
        {"name": "arithmetic: wall time, aim", "ours": median(walls), "peer": 60.0,
         "peer_name": "aim", "ratio": 60.0 / median(walls), "unit": "s"},
    ]


def smoke(seeds, out):
    walls, gains = [], []
    for seed in seeds:
        wall, evals, _ = run(ROOT / "examples/smoke.yaml", seed, out / f"smoke-{seed}")
        walls.append(wall)
        gains.append(evals[max(evals)]["eval_accuracy"] - evals[min(evals)]["eval_accuracy"])
        print(f"smoke seed {seed}: exact match +{gains[-1]:.3f} in {wall:.1f} s", flush=True)
    median = statistics.median
    return [
        figures.bound("smoke: rise of the exact match", median(gains), 0.1, "share"),
        figures.bound("smoke: wall time", median(walls), 15.0, "s", True),
    ]


def stories(seeds, out, model):
    walls, gains, reached = [], [], []
    for seed in seeds:
        wall, evals, steps = run(ROOT / "examples/stories.yaml", seed, out / f"stories-{seed}",
                                 [f"model.path={model}"])
        rewards = [row["reward_mean"] for row in steps]
        before = statistics.mean(rewards[:2])
        after = statistics.mean(rewards[-5:])
        walls.append(wall)
        gains.append(after - before)
        reached.append(after)
        print(f"stories seed {seed}: mean reward {before:.3f} -> {after:.3f} in {wall:.1f} s",
              flush=True)
    median = statistics.median
    return [
        figures.bound("stories: rise of the mean reward", median(gains), 0.25, "reward"),
        figures.bound("stories: wall time", median(walls), 240.0, "s", True),
    ]


def against_trl(args, out, model):
    """Rows of the comparison with TRL: measured with --full, otherwise those of the committed result."""
    if not args.full:
        rows = stories_trl.committed()
        if not rows:
            print("stories against TRL: not measured; run with --full", flush=True)
        return rows
    seeds = range(1, (args.seeds or stories_trl.SEEDS) + 1)
    result = stories_trl.measure(run, FRESHET, model, seeds, args.steps, out)
    path = ROOT / "build/bench" / stories_trl.RESULT.name
    path.write_text(json.dumps(result, indent=1) + "\n")
    return stories_trl.rows(result)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, help="number of seeds; default 3, and 5 against TRL")
    parser.add_argument("--model", default=os.environ.get("FRESHET_STORIES_MODEL", ""),
                        help="directory of the stories260K model in Hugging Face layout")
    parser.add_argument("--full", action="store_true", help="also train stories with TRL, installed on first use (5 GB)")
    parser.add_argument("--steps", type=int, help="steps of the jobs against TRL, for a trial; default: the job's")
    parser.add_argument("--peers", action="store_true", help="no effect: TRL is a peer of --full")
    parser.add_argument("--only", choices=["arithmetic", "stories", "smoke", "trl"])
    args = parser.parse_args()
    out = ROOT / "build/bench/learn"
    out.mkdir(parents=True, exist_ok=True)
    seeds = range(1, (args.seeds or 3) + 1)
    rows = []
    if args.only in (None, "smoke"):
        rows += smoke(seeds, out)
    if args.only in (None, "arithmetic"):
        rows += arithmetic(seeds, out)
    model = pathlib.Path(args.model or ROOT.parent / "shared/data/stories260K/hf").resolve()
    trl = args.only in (None, "trl")
    if not model.is_dir() and (args.only in (None, "stories") or (trl and args.full)):
        missing = f"there is no model {model}; set its directory with --model"
        if args.only:
            sys.exit(missing)
        print(f"stories: skipped, {missing}", flush=True)
    elif args.only in (None, "stories"):
        rows += stories(seeds, out, model)
    if trl and (model.is_dir() or not args.full):
        rows += against_trl(args, out, model)
    missed = figures.report(rows, ROOT / "build/bench/learn.json")
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
