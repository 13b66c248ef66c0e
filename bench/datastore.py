#!/usr/bin/env python3
"""Measures the throughput of samples through the Redis datastore, compared with peers in the same run.

    datastore.py [--peers] [--rounds 5] [--samples 20480] [--bin build/bench]

Four producers, one trainer, groups of 16, log-normal lengths (median 1,500 tokens), staleness 2. Every round runs all
kinds in alternating order, each on its own redis-server. Writes build/bench/datastore.json. Exits 1 if a goal is
missed.
"""
import argparse
import contextlib
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "tests/testing")]
import figures  # noqa: E402
from launcher import Processes, call  # noqa: E402

IN_MEMORY = ["--appendonly", "no"]
DURABLE = []
PEER_PACKAGES = ["TransferQueue==0.1.9"]


@contextlib.contextmanager
def redis(settings):
    with tempfile.TemporaryDirectory(prefix="freshet-bench-") as folder, Processes(folder) as processes:
        processes.start_redis(*settings)
        yield processes.redis_port


def run(command):
    return json.loads(call(*command, timeout=600).strip().splitlines()[-1])


def peer_python():
    """Python of a virtual environment with the peers, created once."""
    folder = pathlib.Path(os.environ.get("XDG_CACHE_HOME", pathlib.Path.home() / ".cache")) / "freshet" / "peers"
    python = folder / "bin" / "python"
    if not (folder / "complete").exists():
        print("installing " + " ".join(PEER_PACKAGES), file=sys.stderr)
        subprocess.run([sys.executable, "-m", "venv", "--clear", folder], check=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", *PEER_PACKAGES], check=True)
        (folder / "complete").touch()
    return python


class Bench:
    def __init__(self, binaries, samples, python):
        self.program = pathlib.Path(binaries) / "datastore_bench"
        self.samples, self.python = str(samples), python
        self.value_bytes = run([self.program, "size"])["bytes"]

    def mix(self, settings, *flags):
        with redis(settings) as port:
            return run([self.program, "mix", "--port", port, *flags])

    def set(self, settings):
        with redis(settings) as port:
            return run([self.program, "set", "--port", port, "--bytes", self.value_bytes, "--samples", self.samples])

    def claims(self):
        with redis(IN_MEMORY) as port:
            return run([self.program, "claims", "--port", port])

    def kinds(self):
        mix = ["--samples", self.samples]
        kinds = {
            "freshet": lambda: self.mix(IN_MEMORY, *mix),
            "set": lambda: self.set(IN_MEMORY),
            "freshet, a scorer of its own": lambda: self.mix(IN_MEMORY, *mix, "--scorer"),
            "freshet, durable": lambda: self.mix(DURABLE, *mix),
            "set, durable": lambda: self.set(DURABLE),
            "freshet at 1,000/s": lambda: self.mix(IN_MEMORY, *mix, "--samples-per-second", "1000"),
        }
        if self.python:
            kinds["transferqueue"] = lambda: run([self.python, HERE / "transfer_queue_mix.py", "--samples", self.samples])
        return kinds


def rate(result):
    return result["samples"] / result["seconds"]


def percentile(values, share):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def table(results):
    print(f"{'':32} {'samples/s':>10} {'claim p50 ms':>13} {'p99 ms':>8} {'batch p50 ms':>13} {'CPU us/sample':>14}")
    for kind, runs in results.items():
        claims = [1e3 * s for r in runs for s in r.get("claim_seconds", [])]
        batches = [1e3 * s for r in runs for s in r.get("batch_seconds", [])]
        cells = [f"{statistics.median(map(rate, runs)):10.0f}"]
        cells += [f"{percentile(claims, 0.5):13.2f} {percentile(claims, 0.99):8.2f}" if claims else " " * 22]
        cells += [f"{percentile(batches, 0.5):13.1f}" if batches else " " * 13]
        if "client_cpu_seconds" in runs[0]:
            cpu = [1e6 * (r["client_cpu_seconds"] + r["server_cpu_seconds"]) / r["samples"] for r in runs]
            cells += [f"{statistics.median(cpu):14.1f}"]
        print(f"{kind:32} " + " ".join(cells))


def goals(results, server_claims):
    def median(kind):
        return statistics.median(map(rate, results[kind]))

    rows = []
    if "transferqueue" in results:
        rows.append({"name": "RL mix against TransferQueue 0.1.9", "ours": median("freshet"), "unit": "samples/s",
                     "peer": median("transferqueue"), "peer_name": "TransferQueue",
                     "ratio": median("freshet") / median("transferqueue"), "goal": 20})
    for kind, peer in (("freshet", "set"), ("freshet, durable", "set, durable")):
        row = {"name": f"RL mix against pipelined SET ({kind})", "ours": median(kind), "unit": "samples/s",
               "peer": median(peer), "peer_name": "SET", "ratio": median(kind) / median(peer)}
        rows.append({**row, "goal": 0.6} if kind == "freshet" else row)
    claims = [1e3 * s for r in results["freshet at 1,000/s"] for s in r["claim_seconds"]]
    rows.append(figures.bound(f"claim p99 at 1,000 samples/s ({len(claims)} claims)", percentile(claims, 0.99), 1, "ms", True))
    rows.append(figures.bound("server time of a claim of 64 groups, median", 1e3 * statistics.median(server_claims), 1, "ms", True))
    violations = sum(r.get("violations", 0) for runs in results.values() for r in runs)
    rows.append(figures.bound("stale, split or changed samples", 1 + violations, 1, "1 + count", True))
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peers", action="store_true", 
                        help="also run TransferQueue, installed from PyPI on first use (5 GB)")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--samples", type=int, default=20480)
    parser.add_argument("--bin", default="build/bench", help="folder with datastore_bench")
    args = parser.parse_args()
    bench = Bench(args.bin, args.samples, peer_python() if args.peers else None)
    kinds = bench.kinds()
    results = {kind: [] for kind in kinds}
    for number in range(args.rounds):
        order = list(kinds) if number % 2 == 0 else list(reversed(kinds))
        for kind in order:
            results[kind].append(kinds[kind]())
            print(f"round {number + 1}: {kind}: {rate(results[kind][-1]):.0f} samples/s", file=sys.stderr)
    server_claims = bench.claims()["server_seconds"]
    table(results)
    rows = goals(results, server_claims)
    missed = figures.report(rows, pathlib.Path("build/bench/datastore.json"),
                            {"runs": results, "server_claim_seconds": server_claims, "bytes_per_sample": bench.value_bytes})
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
