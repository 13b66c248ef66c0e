#!/usr/bin/env python3
"""Measures how fast the native engine generates, beside peers and the machine's ceilings in the same run.

    rollout.py [--peers] [--models T,M] [--rounds 5] [--threads N] [--bin build/bench]

Random bf16 weights: T has 33.6 M parameters (8 layers of 512), M has 415 M (24 layers of 896). Every round runs all
kinds in alternating order; a peer that has not generated its tokens after 15 s stops there. Writes
build/bench/rollout.json, and the table as rollout.md beside it. Exits 1 if a goal is missed.
"""
import argparse
import contextlib
import functools
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
import rollout_peers  # noqa: E402
from launcher import call  # noqa: E402

GENERATE = {"T": 128, "M": 32}
PREFILL_GROUPS = {"T": 8, "M": 2}
PEER_LIMIT_S = 15
MAX_DISTANCE = 0.05  # of a peer's log-probs, in nats; farther ones are those of another model

# What peers run too: kind -> workload and lengths.
def shared_kinds(model):
    return {
        "decode": ("decode", {"groups": 8, "samples": 8, "prompt": 128, "generate": GENERATE[model]}),
        "batch 1": ("decode", {"groups": 1, "samples": 1, "prompt": 128, "generate": GENERATE[model]}),
        "prefill": ("prefill", {"groups": PREFILL_GROUPS[model], "prompt": 512}),
    }


PLACES = (8, 32)  # of continuous and static batching

# kind: (workload, flags)
PREFIX_KINDS = {
    "group of 16": ("decode", ["--groups", "1", "--samples", "16", "--prompt", "1024", "--generate", "256"]),
    "16 prompts": ("decode", ["--groups", "16", "--samples", "1", "--prompt", "1024", "--generate", "256",
                              "--no-prefix-cache"]),
    "turns": ("turns", ["--generate", "64"]),
    "turns, recomputed": ("turns", ["--generate", "64", "--no-prefix-cache"]),
}
SMALL_KINDS = {  # too slow with M
    "decode, fp32": ("decode", ["--dtype", "fp32"]),
    "decode, ATen": ("decode", ["--aten"]),
    "prefill, ATen": ("prefill", ["--prompt", "512", "--aten"]),
} | {
    f"{kind}, {places} places": ("lengths", ["--groups", str(places), "--prompt", "16", "--generate", "32", *flags])
    for places in PLACES for kind, flags in (("continuous", []), ("static", ["--static"]))
}


class Bench:
    def __init__(self, binaries, threads):
        self.program, self.threads = pathlib.Path(binaries) / "rollout_bench", str(threads)

    def run(self, model, workload, *flags):
        command = [self.program, workload, "--model", model, "--threads", self.threads, *flags]
        return json.loads(call(*command, timeout=1800).strip().splitlines()[-1])

    def shared(self, model, workload, lengths, dtype):
        flags = [word for name, value in lengths.items() for word in (f"--{name}", str(value))]
        return self.run(model, workload, "--dtype", dtype, *flags)


def kinds_of(bench, model, peers, quick):
    """Functions that run each kind once."""
    kinds = {}
    for kind, (workload, lengths) in shared_kinds(model).items():
        for dtype, suffix in (("bf16", ""), ("int8", ", int8")):
            kinds[kind + suffix] = functools.partial(bench.shared, model, workload, lengths, dtype)
        for name, peer in peers.items():
            kinds[f"{kind}, {name}"] = functools.partial(peer.ask, workload=workload, limit_s=PEER_LIMIT_S, **lengths)
    others = (PREFIX_KINDS | SMALL_KINDS) if model == "T" else {} if quick else PREFIX_KINDS
    for kind, (workload, flags) in others.items():
        kinds[kind] = functools.partial(bench.run, model, workload, *flags)
    kinds["swap"] = functools.partial(bench.run, model, "swap", "--generate", str(GENERATE[model] + 4))
    return kinds


def measure(kinds, model, rounds):
    results = {kind: [] for kind in kinds}
    for number in range(1, rounds + 1):
        for kind in kinds if number % 2 else reversed(kinds):
            result = kinds[kind]()
            results[kind].append(result)
            print(f"{time.strftime('%H:%M:%S')} round {number}: {model} {kind}: {rate(kind, result):.5g}", file=sys.stderr)
    return results


def distances(bench, model, peers):
    """Mean distance of log-probs from those of fp32 weights, by precision and peer."""
    exact = bench.run(model, "score", "--prompt", "128", "--dtype", "fp32")
    scores = {name: peer.ask(workload="score", ids=exact["ids"]) for name, peer in peers.items()}
    for dtype in ("bf16", "int8"):
        scores[dtype] = bench.run(model, "score", "--prompt", "128", "--dtype", dtype)
    means = {name: statistics.mean(abs(a - b) for a, b in zip(score["logprobs"], exact["logprobs"]))
             for name, score in scores.items()}
    for name, mean in means.items():
        if not mean < MAX_DISTANCE:
            raise RuntimeError(f"log-probs of {name} are {mean:.3g} nats from those of fp32: not the same model")
    return means


def rate(kind, result):
    """Tokens per second; for swaps seconds."""
    if kind == "swap":
        return result["swap_seconds"]
    if "decode_tokens" in result and not kind.startswith(("group", "16")):
        return result["decode_tokens"] / result["decode_seconds"]
    return result["tokens"] / result["seconds"]


def ceiling(kind, result, ceilings, model):
    """Tokens per second if a step took the longer of reading all matrices and computing their products, and attention
    nothing."""
    dtype = "int8" if kind.endswith("int8") else "fp32" if kind.endswith("fp32") else "bf16"
    multiplied, flops = result["multiplied_parameters"], ceilings[f"{dtype}_flops"]
    if kind.startswith("prefill"):
        return flops / (2 * (multiplied - result["head_parameters"]))
    _, lengths = shared_kinds(model)["batch 1" if kind.startswith("batch 1") else "decode"]
    batch = lengths["groups"] * lengths["samples"]
    size = {"bf16": 2, "int8": 1 + 4 / 64, "fp32": 4}[dtype]
    return batch / max(multiplied * size / ceilings["bytes_per_second"], 2 * multiplied * batch / flops)


class Table:
    """Rows of figures.py for one model."""

    def __init__(self, model, results, ceilings):
        self.model, self.results, self.ceilings, self.rows = model, results, ceilings, []

    def median(self, kind):
        return statistics.median(rate(kind, result) for result in self.results[kind])

    def row(self, name, **values):
        self.rows.append({"name": f"{self.model}: {name}", **values})

    def against(self, name, ours, peer, goal=None):
        row = {"ours": self.median(ours), "peer": self.median(peer), "peer_name": self.described(peer), "unit": "tokens/s",
               "ratio": self.median(ours) / self.median(peer)}
        self.row(name, **row, **({"goal": goal} if goal else {}), **self.profile(ours))

    def described(self, kind):
        """The peer's name; also its precision if it chose one, and its tokens if they are fewer."""
        result = self.results[kind][-1]
        name = next((name for name in rollout_peers.PEERS if kind.endswith(f", {name}")), kind)
        wanted = shared_kinds(self.model).get(kind.removesuffix(f", {name}"), ("", {}))[1]
        notes = [result["dtype"]] if "dtype" in result else []
        if "generate" in wanted and result.get("generate", wanted["generate"]) < wanted["generate"]:
            notes.append(f"{result['generate']:.0f} of {wanted['generate']} tokens")
        elif kind.startswith("prefill") and wanted and result["tokens"] < wanted["groups"] * wanted["prompt"]:
            notes.append(f"{result['tokens']} of {wanted['groups'] * wanted['prompt']} tokens")
        return f"{name} ({', '.join(notes)})" if notes else name

    def profile(self, kind):
        """Share of the ceiling if there is one, and shares of the time, of one of our kinds."""
        runs = self.results[kind]
        phases = {phase: statistics.median(run["phases"][phase] / run.get("decode_seconds", run["seconds"]) for run in runs)
                  for phase in runs[-1]["phases"]}
        phases["other"] = max(0.0, 1 - sum(phases.values()))
        spent = ", ".join(f"{phase} {100 * part:.0f} %" for phase, part in phases.items())
        if not kind.startswith(tuple(shared_kinds(self.model))):
            return {"profile": phases, "note": spent}
        share = self.median(kind) / ceiling(kind, runs[-1], self.ceilings, self.model)
        return {"roofline": share, "profile": phases, "note": f"{100 * share:.0f} % of the ceiling; {spent}"}

    def fastest(self, kind, names):
        return max((f"{kind}, {name}" for name in names), key=self.median)

    def add_peers(self):
        small = self.model == "T"
        self.against("decode 8 x 8, bf16", "decode", "decode, vLLM", 2)
        self.against("decode 8 x 8, bf16", "decode", "decode, llama.cpp BF16", 5 if small else 4)
        self.against("decode 8 x 8, int8", "decode, int8", "decode, llama.cpp Q8_0", 1.5 if small else 1.2)
        self.against("decode 8 x 8, bf16", "decode", "decode, transformers", 10)
        for kind, goal in (("batch 1", 1), ("prefill", 1.5)):
            best = self.fastest(kind, [name for name in rollout_peers.PEERS if not name.endswith("Q8_0")])
            self.against(f"{kind}, bf16, the best peer", kind, best, goal)
            self.against(f"{kind}, int8", f"{kind}, int8", f"{kind}, llama.cpp Q8_0", goal)

    def add_own(self):
        if "decode, ATen" in self.results:
            self.against("decode 8 x 8 against ATen", "decode", "decode, ATen")
            self.against("decode 8 x 8 against fp32", "decode", "decode, fp32")
            self.against("prefill of 512 against ATen", "prefill", "prefill, ATen")
        self.against("decode 8 x 8, int8 against bf16", "decode, int8", "decode")
        self.against("batch 1, int8 against bf16", "batch 1, int8", "batch 1")
        if "turns" in self.results:
            self.against("prefix shared by 16, prompt 1024", "group of 16", "16 prompts", 2)
            self.against("8 turns against recomputing", "turns", "turns, recomputed", 3)
        for kind in ("decode", "prefill", "batch 1"):
            limit = ceiling(kind, self.results[kind][-1], self.ceilings, self.model)
            self.row(f"{kind}, share of the machine", ours=self.median(kind), peer=limit, peer_name="ceiling",
                     unit="tokens/s", ratio=self.median(kind) / limit)
        swaps = statistics.median(r["swap_seconds"] / r["step_seconds"] for r in self.results["swap"])
        self.rows.append(figures.bound(f"{self.model}: a weight swap, in decode steps", swaps, 1, "steps", True))
        for places in PLACES:
            continuous, static = (f"{kind}, {places} places" for kind in ("continuous", "static"))
            if continuous not in self.results:
                continue
            self.against(f"continuous against static batching, {places} sequences", continuous, static, 2)
            filled = self.results[continuous][0]["filled_places"]
            self.row(f"continuous batching, {places} sequences, against a full batch in every step", ours=filled,
                     unit="of the places", peer=1, peer_name="ideal", goal=0.9, ratio=filled)

    def add_distances(self, means):
        peer = "llama.cpp Q8_0" if "llama.cpp Q8_0" in means else "bf16"
        self.row("log-probs of int8 weights, mean distance from fp32", ours=1e3 * means["int8"], unit="mnats",
                 peer=1e3 * means[peer], peer_name=peer, ratio=means[peer] / means["int8"])

    def add_invariance(self, products, batch):
        """The engine has no other mode, so its products are compared with a library's that may choose the order of its
        sums by the size of the batch."""
        flops = 2e-9 * batch * self.results["decode"][-1]["multiplied_parameters"]
        peer = min(("ATen bf16", "ATen fp32"), key=products.get)
        self.row(f"batch-invariant products of {batch} rows, bf16", ours=flops / products["bf16"], unit="GFLOP/s",
                 peer=flops / products[peer], peer_name=peer, ratio=products[peer] / products["bf16"])


def run_model(bench, model, options, folders, ceilings):
    """Rows and raw results."""
    with contextlib.ExitStack() as stack:
        peers = {}
        if folders:
            directory = peer_processes.model_directory(bench.program, model)
            logs = pathlib.Path(options.bin)
            peers = stack.enter_context(rollout_peers.running(folders, directory, options.threads, logs))
        means = distances(bench, model, peers)
        results = measure(kinds_of(bench, model, peers, bool(peers)), model, options.rounds)
    table = Table(model, results, ceilings)
    if folders:
        table.add_peers()
    table.add_own()
    table.add_distances(means)
    products = {}
    for batch in (1, 64):
        products[batch] = bench.run(model, "products", "--groups", "1", "--samples", str(batch))
        table.add_invariance(products[batch], batch)
    return table.rows, {"results": results, "distances": means, "products": products}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peers", action="store_true",
                        help="also run vLLM, llama.cpp and transformers, installed on first use (5 GB)")
    parser.add_argument("--models", default="T,M", help="T, M or both (%(default)s)")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--bin", default="build/bench")
    options = parser.parse_args()
    bench = Bench(options.bin, options.threads)
    folders = rollout_peers.install() if options.peers else None
    started = time.monotonic()
    ceilings = bench.run("T", "ceilings")
    rows, raw = [], {"ceilings": ceilings}
    for model in options.models.split(","):
        more, raw[model] = run_model(bench, model, options, folders, ceilings)
        rows += more
    print(f"{options.threads} threads, kernels {ceilings['kernels']}, products "
          + ", ".join(f"{dtype} {ceilings[f'{dtype}_flops'] / 1e9:.0f} GFLOP/s" for dtype in ("fp32", "bf16", "int8"))
          + f", memory {ceilings['bytes_per_second'] / 1e9:.1f} GB/s, {(time.monotonic() - started) / 60:.0f} minutes")
    path = pathlib.Path(options.bin) / "rollout.json"
    missed = figures.report(rows, path, raw)
    path.with_suffix(".md").write_text(figures.markdown(rows))
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
