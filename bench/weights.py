#!/usr/bin/env python3
"""Measures publications of weights to two engines that generate meanwhile, beside peers in the same run.

    weights.py [--peers] [--rounds 5] [--model M] [--bin build/bench]
    weights.py --engines [--rounds 5] [--bin build/bench]
    weights.py --delta [--rounds 5] [--bin build/bench]

Model M has 415 M parameters (830 MB in bf16), T 33.6 M. Every round publishes by each route and, under the same load, by
each peer, in alternating order. Then an engine dies in the middle of a publication, and engines come and go 20 times in a
minute. Writes build/bench/weights.json, and the table as weights.md beside it. Exits 1 if a goal is missed.

With --engines instead: the time of the relay for 1 to 128 engines whose links have a limited rate, beside that of a
pipeline that passes buckets on. Writes build/bench/relay.json and relay.md.

With --delta instead: trains a model of 17 M parameters with several learning rates, and measures the differences between
its versions, and how long a version takes over slow links with and without them. Writes build/bench/delta.json and
delta.md.
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
sys.path[:0] = [str(HERE), str(HERE.parent / "tests/testing")]
import figures  # noqa: E402
import peer_processes  # noqa: E402

ROUTES = ["shm", "grpc_relay", "gloo"]
PEERS = {"Gloo (PyTorch)": "broadcast", "safetensors in /dev/shm": "safetensors"}
BYTES = {"M": 829_997_056, "T": 67_141_632}  # of the peers' tensor
ENGINES, BATCH = 2, 16
CHANGES, STORM_S = 20, 60
CHAINS = [1, 2, 8, 32, 128]
RELAY_BYTES, RELAY_RATE = 16 << 20, 512 << 10
FLAT = 1.3  # a chain may take this much longer than one engine
LEARNING_RATES = ["1e-4", "1e-5", "1e-6"]
DELTA_STEPS = 6
DELTA_JOB = ["model.dtype=bf16", "model.config.hidden_size=512", "model.config.num_hidden_layers=4",
             "model.config.num_attention_heads=8", "model.config.intermediate_size=2048", "warmup.sft.steps=60",
             f"trainer.steps={DELTA_STEPS}", "optimizer.schedule=constant", "checkpoint.dtype=bf16", "checkpoint.every_steps=1",
             f"checkpoint.keep_last={DELTA_STEPS + 1}", "eval.rows=16"]
PIECES = [512 << 10, 1 << 20]  # of versions below 1 GiB, and of others
LINKS = [4, 64, 200]  # MB/s


def row(name, ours, peer, peer_name, unit, ratio, goal=None):
    return {"name": name, "ours": ours, "peer": peer, "peer_name": peer_name, "unit": unit, "ratio": ratio,
            **({"goal": goal} if goal else {})}


class Table:
    def __init__(self, results):
        self.results, self.rows = results, []

    def median(self, kind, key):
        return statistics.median(result[key] for result in self.results[kind])

    def total(self, kind):
        """Seconds from the trainer's weights until the last engine has activated them."""
        return statistics.median(r["stage_seconds"] + r["publish_seconds"] for r in self.results[kind])

    def publications(self):
        for kind in ROUTES:
            whole, copy = self.total(kind), self.median(kind, "memcpy_seconds")
            self.rows.append(row(f"{kind}: stage and publish, against one memcpy under the same load", whole, copy, "memcpy",
                                 "s", 1.3 * copy / whole, 1 if kind == "shm" else None))
            stage = self.median(kind, "stage_seconds")
            self.rows.append(row(f"{kind}: of it the trainer waits", stage, copy, "memcpy", "s", copy / stage))
            self.rows.append(figures.bound(f"{kind}: longest pause of an engine", self.median(kind, "stall_steps"), 1, "steps",
                                           True))

    def peers(self):
        for kind in PEERS:
            peer = self.median(kind, "publish_seconds")
            for ours in ROUTES:
                self.rows.append(row(f"{ours} against {kind}", self.total(ours), peer, kind, "s", peer / self.total(ours),
                                     5 if ours == "shm" else None))

    def disturbed(self, route, killed, storm):
        usual = statistics.median(result["usual_seconds"] for result in killed)
        slow = statistics.median(result["killed_seconds"] for result in killed)
        self.rows.append(row(f"{route}: the others, when an engine dies in the middle", slow, usual, "usual", "s",
                             1.5 * usual / slow, 1))
        missing = sum(max(0, result["others"] - result["holders"]) for result in killed)
        self.rows.append(figures.bound(f"{route}: others without the version then", missing, 0, "engines", True))
        self.rows.append(figures.bound(
            f"{route}: versions lost by permanent engines in {storm['published']}, {storm['changes']} changes in "
            f"{storm['seconds']:.0f} s", storm["lost"], 0, "versions", True))
        self.rows.append(figures.bound(f"{route}: samples lost or cut short by permanent engines so far",
                                       storm["samples_lost"], 0, "samples", True))
        self.rows.append(row(f"{route}: tokens of permanent engines then, against before", storm["tokens_per_second"],
                             storm["tokens_per_second_before"], "before", "tokens/s",
                             storm["tokens_per_second"] / storm["tokens_per_second_before"]))


def lines_of(*command):
    output = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, check=True, text=True).stdout
    return [json.loads(line) for line in output.splitlines()]


def relay_chains(binaries, rounds):
    """Times of chains of several lengths. Their links are the bottleneck, not the processor."""
    rows, results = [], {}
    for engines in CHAINS:
        command = [binaries / "relay_bench", "--engines", engines, "--bytes", RELAY_BYTES, "--rate", RELAY_RATE, "--rounds",
                   rounds]
        results[engines] = lines_of(*command)
        for result in results[engines]:
            print(f"{time.strftime('%H:%M:%S')} {result}", file=sys.stderr)
            if result["holders"] != engines:
                sys.exit(f"only {result['holders']} of {engines} engines have the version")
    seconds = {n: statistics.median(result["seconds"] for result in results[n]) for n in CHAINS}
    for engines in CHAINS:
        first = results[engines][0]
        # Each link brings the version at its rate; each engine but the first waits for a bucket, less a burst, more.
        pipeline = (first["bytes"] + (engines - 1) * (first["bucket_bytes"] - first["burst"])) / first["rate"]
        cores = max(result["cores"] for result in results[engines])
        rows.append(row(f"{engines} engines", seconds[engines], seconds[1], "one engine", "s",
                        FLAT * seconds[1] / seconds[engines], 1)
                    | {"note": f"{seconds[engines] / seconds[1]:.2f} of one; calculated {pipeline:.2f} s; {cores:.2f} cores"})
    path = binaries / "relay.json"
    missed = figures.report(rows, path, results)
    path.with_suffix(".md").write_text(figures.markdown(rows))
    return 1 if missed else 0


def versions(binaries, folder, learning_rate):
    """Weights of the last two versions of a short training run."""
    words = [word for key in [*DELTA_JOB, f"optimizer.learning_rate={learning_rate}"] for word in ("--set", key)]
    subprocess.run([binaries.parent / "bin/freshet", "local", HERE.parent / "examples/arithmetic.yaml", "--run-dir", folder,
                    *words], check=True, stdout=subprocess.DEVNULL)
    return sorted(folder.glob("checkpoints/*/model.safetensors"))[-2:]


def deltas(binaries, rounds):
    """Differences between versions: their size, their time on one core, and what they save on slow links."""
    rows, results = [], []
    with tempfile.TemporaryDirectory() as scratch:
        for rate in LEARNING_RATES:
            base, version = versions(binaries, pathlib.Path(scratch) / rate, rate)
            for piece in PIECES:
                result = lines_of(binaries / "delta_bench", base, version, "--piece", piece)[0]
                results.append(result | {"learning_rate": rate})
                encode, decode = result["encode_bytes_per_second"], result["decode_bytes_per_second"]
                rows.append(row(f"learning rate {rate}, pieces of {piece >> 10} KiB: bytes sent",
                                result["sent"] * result["bytes"] / 1e6, result["bytes"] / 1e6, "whole", "MB",
                                1 / result["sent"])
                            | {"note": f"{100 * result['changed']:.1f} % of words changed; {100 * result['sent']:.1f} % sent; "
                                       f"encodes {encode / 1e9:.2f} GB/s, decodes {decode / 1e9:.2f} GB/s a core"})
            for link in LINKS:
                seconds = {}
                for flags in ([], ["--delta"]):
                    timed = lines_of(binaries / "relay_bench", "--engines", 1, "--rate", link * 1_000_000, "--burst", 64 << 10,
                                     "--rounds", rounds, "--from", base, "--to", version, *flags)
                    results += [result | {"learning_rate": rate, "delta": bool(flags)} for result in timed]
                    seconds[bool(flags)] = statistics.median(result["seconds"] for result in timed)
                rows.append(row(f"learning rate {rate}, link of {link} MB/s: time of a version", seconds[True],
                                seconds[False], "whole", "s", seconds[False] / seconds[True]))
    path = binaries / "delta.json"
    figures.report(rows, path, results)
    path.with_suffix(".md").write_text(figures.markdown(rows))
    return 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peers", action="store_true", help="also run PyTorch, installed on first use (5 GB)")
    parser.add_argument("--engines", action="store_true", help="only the relay's time for 1 to 128 engines")
    parser.add_argument("--delta", action="store_true", help="only differences between versions")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--model", choices=("M", "T"), default="M")
    parser.add_argument("--bin", default="build/bench")
    options = parser.parse_args()
    binaries = pathlib.Path(options.bin).resolve()
    if options.engines:
        return relay_chains(binaries, options.rounds)
    if options.delta:
        return deltas(binaries, options.rounds)
    with contextlib.ExitStack() as stack:
        def start(name, *command):
            peer = peer_processes.Peer(name, command, binaries / f"peer-{name}.log")
            stack.callback(peer.stop)
            return peer

        ours = start("weight_bench", binaries / "weight_bench", "serve", "--model", options.model, "--engines", str(ENGINES),
                     "--batch", str(BATCH))
        kinds = {route: (lambda route=route: ours.ask(workload="publish", route=route)) for route in ROUTES}
        if options.peers:
            python = peer_processes.install_vllm() / "bin/python"
            torch = start("weights", python, HERE / "peers/weights_peer.py", "-", "--threads", str(ENGINES), "--format",
                          str(BYTES[options.model]))
            kinds |= {kind: (lambda name=name: torch.ask(workload=name)) for kind, name in PEERS.items()}
        results = {kind: [] for kind in kinds}
        for number in range(options.rounds + 1):  # the first one warms up
            for kind in kinds if number % 2 else reversed(kinds):
                result = kinds[kind]()
                if result.get("holders", ENGINES) != ENGINES:
                    sys.exit(f"{kind}: only {result['holders']} of {ENGINES} engines have the version")
                if number:
                    results[kind].append(result)
                    print(f"{time.strftime('%H:%M:%S')} round {number}: {kind}: {result}", file=sys.stderr)
        disturbed = {}
        for route in ROUTES:
            killed = [ours.ask(workload="kill", route=route) for _ in range(options.rounds)]
            disturbed[route] = killed, ours.ask(workload="storm", route=route, changes=CHANGES, seconds=STORM_S)
            print(f"{route}: {disturbed[route]}", file=sys.stderr)
    table = Table(results)
    table.publications()
    if options.peers:
        table.peers()
    for route in ROUTES:
        table.disturbed(route, *disturbed[route])
    step = table.median("shm", "step_seconds")
    rate = table.median("shm", "tokens_per_second")
    print(f"{ENGINES} engines of {BATCH} samples: {rate:.0f} tokens/s, {1e3 * step:.0f} ms a step")
    path = binaries / "weights.json"
    missed = figures.report(table.rows, path, {"publications": results, "disturbed": disturbed})
    path.with_suffix(".md").write_text(figures.markdown(table.rows))
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
