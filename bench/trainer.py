#!/usr/bin/env python3
"""Measures training steps of the learner on a fixed GRPO batch, beside peers in the same run.

    trainer.py [--peers] [--rounds 5] [--threads N] [--bin build/bench]

Model T (33.6 M parameters, random), 8 prompts of 128 tokens with 8 responses of 64 to 1,024 tokens each, log-normal.
Every round runs all kinds in alternating order, except that after the first round only the fastest of PyTorch's bf16
variants goes on, and kinds without a goal do not. Writes build/bench/trainer.json, and the table as trainer.md beside
it. Exits 1 if a goal is missed.
"""
import argparse
import contextlib
import json
import os
import pathlib
import statistics
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "tests/testing")]
import figures  # noqa: E402
import peer_processes  # noqa: E402
import trainer_peers  # noqa: E402
from launcher import call  # noqa: E402

GROUP = 8
# Kind: flags of `trainer_bench step`.
OURS = {
    "bf16": [],
    "fp32": ["--dtype", "fp32"],
    "bf16, packed": ["--form", "packed"],
    "bf16, padded": ["--form", "padded"],
    "prompt 512, shared": ["--prompt", "512"],
    "prompt 512, packed": ["--prompt", "512", "--form", "packed"],
}
ONCE = ["fp32"]  # without a goal
HEAD_LIMIT = 64e6


class Bench:
    def __init__(self, binaries, threads):
        self.program, self.threads = pathlib.Path(binaries) / "trainer_bench", str(threads)

    def run(self, *command):
        return json.loads(call(self.program, *command, "--threads", self.threads, timeout=1800).strip().splitlines()[-1])

    def step(self, flags):
        result = self.run("step", "--rounds", "1", *flags)
        return result | result.pop("steps")[0]


def rate(result):
    """Trained tokens per second."""
    return result["tokens"] / result["seconds"]


def measure(kinds, rounds, variants, once):
    """After the first round, goes on without `once` and with the fastest of `variants` only."""
    results = {kind: [] for kind in kinds}
    for number in range(1, rounds + 1):
        for kind in kinds if number % 2 else reversed(kinds):
            results[kind].append(kinds[kind]())
            print(f"{time.strftime('%H:%M:%S')} round {number}: {kind}: {rate(results[kind][-1]):.5g} tokens/s",
                  file=sys.stderr)
        if number == 1:
            fastest = max((kind for kind in variants if kind in results), key=lambda kind: rate(results[kind][0]), default=None)
            kinds = {kind: run for kind, run in kinds.items()
                     if kind == fastest or (kind not in variants and kind not in once)}
    return results


class Table:
    def __init__(self, results):
        self.results, self.rows = results, []

    def median(self, kind):
        return statistics.median(map(rate, self.results[kind]))

    def against(self, name, ours, peer, goal=None):
        row = {"name": name, "ours": self.median(ours), "peer": self.median(peer), "peer_name": peer, "unit": "tokens/s",
               "ratio": self.median(ours) / self.median(peer)}
        single = [kind for kind in (ours, peer) if len(self.results[kind]) < max(map(len, self.results.values()))]
        if single:
            row["note"] = f"{', '.join(single)}: first round only"
        self.rows.append(row | ({"goal": goal} if goal else {}))

    def share(self, kind, dtype, ceilings):
        """Of the time that the products of the model take at the fastest measured rate."""
        flops = statistics.median(run["model_flops"] / run["seconds"] for run in self.results[kind])
        peak = ceilings[f"{dtype}_flops"]
        self.rows.append({"name": f"{kind}: model FLOP/s against products", "ours": flops / 1e9, "peer": peak / 1e9,
                          "peer_name": "products", "unit": "GFLOP/s", "ratio": flops / peak,
                          **({"goal": 0.5} if kind == "bf16" else {})})


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peers", action="store_true", help="also run TRL and PyTorch, installed on first use (5 GB)")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--bin", default="build/bench")
    options = parser.parse_args()
    bench = Bench(options.bin, options.threads)
    ceilings = json.loads(call(bench.program.with_name("rollout_bench"), "ceilings", "--threads", bench.threads))
    kinds = {kind: (lambda flags=flags: bench.step(flags)) for kind, flags in OURS.items()}
    with contextlib.ExitStack() as stack:
        if options.peers:
            batch = pathlib.Path(options.bin).resolve() / "trainer-batch.json"
            batch.write_text(json.dumps(bench.run("batch")))
            kinds |= trainer_peers.kinds(stack, bench.program.with_name("rollout_bench"), options.threads, batch, GROUP,
                                         pathlib.Path(options.bin))
        started = time.monotonic()
        results = measure(kinds, options.rounds, trainer_peers.TORCH_BF16, ONCE + trainer_peers.ONCE)
    table = Table(results)
    if options.peers:
        table.against("GRPO step, bf16, against TRL's defaults", "bf16", "TRL", 4)
        best = max(trainer_peers.TORCH_BF16, key=lambda kind: (len(results[kind]), table.median(kind)))
        table.against("GRPO step, bf16, against the best PyTorch bf16", "bf16", best, 1.5)
        table.against("GRPO step, fp32, against PyTorch fp32", "fp32", "PyTorch fp32")
        table.against("GRPO step, fp32, against TRL fp32", "fp32", "TRL fp32")
    table.against("packed against padded to the longest", "bf16, packed", "bf16, padded", 2)
    table.against("prompt of 512 shared by 8", "prompt 512, shared", "prompt 512, packed", 1.5)
    table.against("bf16 against fp32", "bf16", "fp32")
    table.share("bf16", "bf16", ceilings)
    table.share("fp32", "fp32", ceilings)
    head = bench.run("head")
    table.rows.append(figures.bound("memory of head and loss, vocabulary 32,000", head["peak_bytes"] / 1e6, HEAD_LIMIT / 1e6,
                                    "MB", True))
    peak = max(run["peak_bytes"] for run in results["bf16"])
    print(f"{options.threads} threads, products "
          + ", ".join(f"{dtype} {ceilings[f'{dtype}_flops'] / 1e9:.0f} GFLOP/s" for dtype in ("fp32", "bf16"))
          + f", peak memory of a bf16 step {peak / 1e9:.2f} GB, {(time.monotonic() - started) / 60:.0f} minutes")
    path = pathlib.Path(options.bin) / "trainer.json"
    missed = figures.report(table.rows, path, results)
    path.with_suffix(".md").write_text(figures.markdown(table.rows))
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
