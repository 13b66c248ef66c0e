#!/usr/bin/env python3
"""Measures how fast the native engine generates, beside ATen and the machine's ceilings in the same run.

    rollout.py [--models T,M] [--rounds 5] [--threads N] [--bin build/bench]

Random bf16 weights: T has 33.6 M parameters (8 layers of 512), M has 415 M (24 layers of 896). Every round runs all
kinds in alternating order. Writes build/bench/rollout.json. Exits 1 if a goal is missed.
"""
import argparse
import json
import os
import pathlib
import statistics
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "tests/testing")]
import figures  # noqa: E402
from launcher import call  # noqa: E402

# kind: (workload, flags)
KINDS = {
    "decode": ("decode", []),
    "decode, ATen": ("decode", ["--aten"]),
    "decode, fp32": ("decode", ["--dtype", "fp32"]),
    "batch 1": ("decode", ["--groups", "1", "--samples", "1"]),
    "prefill": ("prefill", ["--prompt", "512"]),
    "prefill, ATen": ("prefill", ["--prompt", "512", "--aten"]),
    "group of 16": ("decode", ["--groups", "1", "--samples", "16", "--prompt", "1024", "--generate", "256"]),
    "16 prompts": ("decode", ["--groups", "16", "--samples", "1", "--prompt", "1024", "--generate", "256",
                              "--no-prefix-cache"]),
    "turns": ("turns", ["--generate", "64"]),
    "turns, recomputed": ("turns", ["--generate", "64", "--no-prefix-cache"]),
    "continuous": ("lengths", ["--groups", "32", "--prompt", "16"]),
    "static": ("lengths", ["--groups", "32", "--prompt", "16", "--static"]),
    "swap": ("swap", []),
}
SMALL_ONLY = {"continuous", "static", "decode, fp32"}  # too slow with M


class Bench:
    def __init__(self, binaries, threads):
        self.program, self.threads = pathlib.Path(binaries) / "rollout_bench", str(threads)

    def run(self, model, workload, flags):
        command = [self.program, workload, "--model", model, "--threads", self.threads, *flags]
        return json.loads(call(*command, timeout=1800).strip().splitlines()[-1])


def measure(bench, models, rounds):
    results = {}
    for round_number in range(1, rounds + 1):
        for model in models:
            kinds = [kind for kind in KINDS if model == "T" or kind not in SMALL_ONLY]
            for kind in kinds if round_number % 2 else reversed(kinds):
                workload, flags = KINDS[kind]
                result = bench.run(model, workload, flags)
                results.setdefault((model, kind), []).append(result)
                print(f"round {round_number}: {model} {kind}: {rate(kind, result):.5g}", file=sys.stderr)
    return results


def rate(kind, result):
    """Tokens per second; for swaps seconds."""
    if kind == "swap":
        return result["swap_seconds"]
    if "decode_tokens" in result and not kind.startswith(("group", "16")):
        return result["decode_tokens"] / result["decode_seconds"]
    return result["tokens"] / result["seconds"]


def rows_of(model, results, ceilings):
    def median(kind, value=rate):
        return statistics.median(value(kind, result) for result in results[model, kind])

    def ratio(name, ours, peer, goal=None):
        row = {"name": f"{model}: {name}", "ours": median(ours), "peer": median(peer), "peer_name": peer, "unit":
               "tokens/s", "ratio": median(ours) / median(peer)}
        return row | ({"goal": goal} if goal else {})

    parameters = results[model, "decode"][0]["parameters"]
    rows = [ratio("decode 8 x 8 against ATen", "decode", "decode, ATen"),
            ratio("prefill of 512 against ATen", "prefill", "prefill, ATen"),
            ratio("prefix shared by 16, prompt 1024", "group of 16", "16 prompts", goal=2),
            ratio("8 turns against recomputing", "turns", "turns, recomputed", goal=3)]
    for kind, compute in (("decode", True), ("prefill", True), ("batch 1", False)):
        ceiling = ceilings["flops"] / (2 * parameters) if compute else ceilings["bytes_per_second"] / (2 * parameters)
        rows.append({"name": f"{model}: {kind}, share of the machine's {'products' if compute else 'memory reads'}",
                     "ours": median(kind), "peer": ceiling, "peer_name": "ceiling", "unit": "tokens/s",
                     "ratio": median(kind) / ceiling})
    swap = results[model, "swap"]
    rows.append(figures.bound(f"{model}: a weight swap, in decode steps",
                              statistics.median(r["swap_seconds"] / r["step_seconds"] for r in swap), 1, "steps", True))
    if (model, "continuous") in results:
        rows.append(ratio("continuous against static batching", "continuous", "static", goal=2))
        rows.append({"name": f"{model}: continuous batching against the ideal number of steps",
                     "ours": results[model, "continuous"][0]["steps"], "unit": "steps", "peer_name": "ideal",
                     "peer": results[model, "continuous"][0]["least_steps"], "goal": 0.9,
                     "ratio": results[model, "continuous"][0]["least_steps"] / results[model, "continuous"][0]["steps"]})
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default="T,M", help="T, M or both (%(default)s)")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--bin", default="build/bench")
    options = parser.parse_args()
    bench = Bench(options.bin, options.threads)
    models = options.models.split(",")
    ceilings = bench.run("T", "ceilings", [])
    print(f"{options.threads} threads, kernels {ceilings['kernels']}, products {ceilings['flops'] / 1e9:.0f} GFLOP/s, "
          f"memory {ceilings['bytes_per_second'] / 1e9:.1f} GB/s")
    results = measure(bench, models, options.rounds)
    rows = [row for model in models for row in rows_of(model, results, ceilings)]
    raw = {f"{model} {kind}": result for (model, kind), result in results.items()}
    return 1 if figures.report(rows, pathlib.Path(options.bin) / "rollout.json", raw | {"ceilings": ceilings}) else 0


if __name__ == "__main__":
    sys.exit(main())
