#!/usr/bin/env python3
"""Measures the gain of asynchrony and the cost of the control plane, with real processes and a simulated model.

    pipeline.py [--quick] [--etas 0 1 2 4] [--policies wait drop requeue mask] [--seed K] [--steps N] [--time-scale F]

Runs redis-server (durable), controller, reward, 16 rollouts and a trainer as separate processes. Engines and trainer
sleep instead of computing: the engines like 16 engines with 32 slots and heavy-tailed lengths, the trainer like the
training capacity of 8 engines, in time scaled by --time-scale. bench/pipeline_model.py defines the workload and the
bounds. Everything else is real. `synchronous` is staleness 0 on all 24 engines: all generate, then all train. Prints a
table, verifies every ledger, compares with the goals and writes build/bench/pipeline.json. Exits 1 if a goal is missed.
Linux only; standard library only.
"""
import argparse
import collections
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

import figures
from pipeline_model import Simulation, Workload, step_ms, window

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests/testing"))
import launcher  # noqa: E402

TICKS = os.sysconf("SC_CLK_TCK")
ENDED = ("SUCCEEDED", "FAILED", "CANCELLED")
# Roles whose CPU time counts as "control plane"; for rollouts without their simulated engines.
CONTROL = ("redis", "controller", "reward", "rollout")


def job_text(workload, eta, policy, steps):
    longest = int(workload.median * workload.cap)
    return f"""
name: pipeline
seed: {workload.seed}
model: {{init: random, config: {{model_type: llama, hidden_size: 16, num_hidden_layers: 1, num_attention_heads: 2,
  intermediate_size: 32, max_position_embeddings: {longest + 16}}}}}
tokenizer: {{type: char, alphabet: "0123456789+="}}
dataset: {{type: arithmetic, operands: 2, digits: 2, train_rows: 8000}}
group_size: {workload.group_size}
prompts_per_step: {workload.groups}
rollout: {{max_new_tokens: {longest}}}
staleness: {{max: {eta}, policy: {policy}}}
reward: {{components: {{length: {{type: length, max_tokens: {longest}, margin_tokens: {longest}}}}}}}
loss: {{preset: grpo}}
filter: {{zero_variance: false}}
trainer: {{steps: {steps}}}
optimizer: {{learning_rate: 1.0e-4}}
checkpoint: {{every_steps: 10, keep_last: 2}}
output: {{samples_per_step: 0}}
"""


def cpu_seconds(pid):
    """CPU seconds of all threads of a process since its start."""
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


class Cluster(launcher.Processes):
    """The processes of one run."""

    def __init__(self, folder, workload, scale, binaries):
        w, self.used = workload, pathlib.Path(folder, "usage")
        self.used.mkdir()
        super().__init__(folder, binaries, environment={
            "FRESHET_SIM_STEP_SECONDS": str(w.training_ms * scale / 1000), "FRESHET_SIM_POLL_MS": "5",
            "FRESHET_SIM_USAGE": str(self.used),
            "FRESHET_SIM_ENGINE": f"{w.slots} {w.base_ms} {w.per_sequence_ms} {scale} {w.median} {w.sigma}"})

    def start_all(self, rollouts):
        self.start_redis()
        self.start_roles("controller-0")
        self.start_roles("reward-0", *(f"rollout-{number}" for number in range(rollouts)), "trainer-0")

    def program(self, role):
        return self.binaries / f"freshet-{'sim-' if role in ('rollout', 'trainer') else ''}{role}"

    def flags(self, name):
        return ["--http-listen", ""]

    def usage(self):
        """CPU seconds by role. The simulated engines, which run in the rollouts, count as role "engine"."""
        usage = collections.Counter()
        for name, process in self.processes.items():
            usage[launcher.role_of(name)] += cpu_seconds(process.pid)
        usage["engine"] = sum(float(path.read_text() or 0) for path in self.used.iterdir())
        usage["rollout"] -= usage["engine"]
        return usage


def watch(cluster, first, last, seconds):
    """Follows the job to its end. Returns its step rows by number, and the CPU seconds by role used between the ends of
    the steps `first` and `last`."""
    steps, usage = {}, {}
    stream = subprocess.Popen([cluster.binaries / "freshet", "watch", "pipeline", "--json", "--timeout", str(seconds),
                               "--server", cluster.grpc["controller-0"]], stdout=subprocess.PIPE, text=True)
    for line in stream.stdout:
        row = json.loads(line).get("metrics")
        if row is None or "step" not in row:
            continue
        steps[row["step"]] = row
        if row["step"] in (first, last):
            usage[row["step"]] = cluster.usage()
    if stream.wait() != 0 or last not in usage:
        raise RuntimeError(f"the job did not finish: {cluster.freshet('describe', 'pipeline')}")
    return steps, {role: usage[last][role] - usage[first][role] for role in usage[first]}


def ordinal_of(row):
    return int(row["uid"].split("/")[1])


def ledger_figures(workload, ledger):
    """Shares of groups that ended untrained, of groups that were restarted and of tokens that were masked. "bias" is
    the mean length of trained samples relative to all ended ones, less 1."""
    trained, ended, again, tokens, masked = set(), set(), 0, 0, 0
    for row in ledger:
        if row["event"] == "trained":
            trained.add(ordinal_of(row))
            tokens += row["loss_tokens"] + row["masked_tokens"]
            masked += row["masked_tokens"]
        elif row["event"] in ("dropped", "dead"):
            ended.add(ordinal_of(row))
        elif row["event"] == "requeued":
            again += 1 / workload.group_size

    def mean(ordinals):
        return sum(sum(workload.group_lengths(ordinal)) for ordinal in ordinals) / len(ordinals)

    count = len(trained | ended)
    return {"dropped": len(ended) / count, "restarted": again / count, "masked": masked / tokens,
            "bias": mean(trained) / mean(trained | ended) - 1}


class Case:
    """One row of the table."""

    def __init__(self, name, workload, eta, policy, steps):
        self.name, self.workload, self.eta, self.policy = name, workload, eta, policy
        self.first, self.last, self.steps = window(eta, steps)

    def run(self, options):
        folder = tempfile.mkdtemp(prefix="freshet-pipeline-")
        cluster = Cluster(folder, self.workload, options.time_scale, options.bin)
        try:
            cluster.start_all(self.workload.engines)
            path = cluster.folder / "job.yaml"
            path.write_text(job_text(self.workload, self.eta, self.policy, self.steps))
            cluster.freshet("submit", path, "--id", "pipeline")
            rows, usage = watch(cluster, self.first, self.last, options.timeout)
            verified = subprocess.run([cluster.binaries / "freshet", "ledger", "verify", "pipeline", "--server",
                                       cluster.grpc["controller-0"]], capture_output=True, text=True)
            cluster.freshet("ledger", "export", "pipeline", cluster.folder / "export")
            ledger = [json.loads(line) for line in (cluster.folder / "export/ledger.jsonl").read_text().splitlines()]
        finally:
            cluster.stop()
            if not options.keep:
                shutil.rmtree(folder, ignore_errors=True)
        return self.figures(options, rows, usage, ledger, verified)

    def figures(self, options, rows, usage, ledger, verified):
        w, scale = self.workload, options.time_scale
        seconds = rows[self.last]["wall_seconds"] - rows[self.first]["wall_seconds"]
        count = self.last - self.first
        step = seconds / count
        simulated = None
        if self.policy in ("wait", "drop"):
            rules = Simulation(w, self.eta, self.policy, self.steps).run()
            simulated = step_ms(rules.commits, self.first, self.last) * scale / 1000
        taken = [rows[number] for number in range(self.first + 1, self.last + 1)]
        ages = [row["train_version"] - row["min_version"] for row in ledger if row["event"] == "trained"]
        return {
            "case": self.name, "eta": self.eta, "policy": self.policy, "step_seconds": step,
            "samples_per_second": w.groups * w.group_size / step,
            "bubble_free": w.bubble_free_ms * scale / 1000 / step,
            "ceiling": w.ceiling_ms(self.eta) * scale / 1000 / step,
            "rules": simulated / step if simulated else None,
            "train_seconds": sum(row["train_seconds"] for row in taken) / count,
            "staleness_mean": sum(row["staleness_mean"] for row in taken) / count,
            "staleness_max": max(ages),
            "violations": sum(age > self.eta for age in ages) + (verified.returncode != 0),
            "verify": verified.stdout.strip().splitlines()[-1:] + verified.stderr.strip().splitlines()[-1:],
            "cpu": {role: used / seconds for role, used in usage.items()},
            "control_cpu": sum(usage[role] for role in CONTROL) / seconds,
            **ledger_figures(w, ledger),
        }


def cases(options):
    workload = Workload(seed=options.seed, median=options.median)
    few = max(6, options.steps // 3)  # the steps are all alike
    yield Case("synchronous", workload.colocated(), 0, "wait", few)
    for eta in options.etas:
        # At staleness 0 nothing becomes stale, so all policies behave alike.
        for policy in options.policies if eta > 0 else ["wait"]:
            yield Case(f"eta {eta} {policy}", workload, eta, policy, options.steps if eta > 0 else few)


def percent(share):
    return "–" if share is None else f"{100 * share:.1f} %"


def table(results, sync, alone):
    lines = ["| case | step, s | over synchronous | over eta 0 | of bubble-free | of the bound's ceiling | of the rules "
             "| dropped | started again | tokens masked | length bias | staleness mean | samples/s | control plane, cores "
             "| violations |", "|---|" + "---|" * 14]
    for r in results:
        nothing_lost = r["policy"] == "wait"
        lines.append(
            f"| {r['case']} | {r['step_seconds']:.3f} | {sync / r['step_seconds']:.2f} "
            f"| {alone / r['step_seconds'] if alone else float('nan'):.2f} | {percent(r['bubble_free'])} "
            f"| {percent(r['ceiling'] if nothing_lost and r is not results[0] else None)} | {percent(r['rules'])} "
            f"| {percent(r['dropped'])} | {percent(r['restarted'])} | {percent(r['masked'])} | {percent(r['bias'])} "
            f"| {r['staleness_mean']:.2f} | {r['samples_per_second']:.0f} | {r['control_cpu']:.2f} | {r['violations']} |")
    return "\n".join(lines)


def goals(results, sync):
    by_case = {(r["eta"], r["policy"]): r for r in results[1:]}
    rows = []
    four, two = by_case.get((4, "wait")), by_case.get((2, "wait"))
    if four:
        rows += [figures.bound("eta 4, nothing dropped: speed over synchronous", sync / four["step_seconds"], 2.5, "times"),
                 figures.bound("eta 4: share of min(bubble-free, ceiling)", four["ceiling"], 0.93, "share"),
                 figures.bound("eta 4: groups dropped", 1 + four["dropped"], 1, "1 + share", True)]
    if two:
        rows.append(figures.bound("eta 2: share of its ceiling", two["ceiling"], 0.93, "share"))
    for r in results[1:]:
        if r["policy"] == "wait":
            rows.append(figures.bound(f"eta {r['eta']}: control plane's CPU at {r['samples_per_second']:.0f} samples/s",
                                      r["control_cpu"], 0.5, "cores", True))
    rows.append(figures.bound("staleness violations", 1 + sum(r["violations"] for r in results), 1, "1 + count", True))
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--etas", nargs="+", type=int, default=[0, 1, 2, 4])
    parser.add_argument("--policies", nargs="+", default=["wait", "drop", "requeue", "mask"],
                        choices=["wait", "drop", "requeue", "mask"])
    parser.add_argument("--peers", action="store_true", help="no effect: the bounds are computed")
    parser.add_argument("--steps", type=int, default=40,
                        help="steps to measure in a run; a third of that at staleness 0")
    parser.add_argument("--quick", action="store_true", help="few steps, without requeue and mask")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--median", type=float, default=512, help="median tokens of a sample")
    parser.add_argument("--time-scale", type=float, default=1 / 18,
                        help="real milliseconds per millisecond of the workload")
    parser.add_argument("--timeout", type=float, default=600, help="limit of one run in seconds")
    parser.add_argument("--keep", action="store_true", help="keep the folders of the runs")
    parser.add_argument("--bin", type=pathlib.Path, default=ROOT / "build/bin")
    options = parser.parse_args()
    if options.quick:
        options.steps, options.policies = 18, ["wait", "drop"]
    results, sync, alone = [], None, None
    for case in cases(options):
        result = case.run(options)
        results.append(result)
        sync = sync or result["step_seconds"]
        alone = result["step_seconds"] if case.eta == 0 and case.name != "synchronous" else alone
        cpu = ", ".join(f"{role} {cores:.2f}" for role, cores in result["cpu"].items())
        print(f"# {case.name}: step {result['step_seconds']:.3f} s, {100 * result['ceiling']:.1f} % of the ceiling; "
              f"cores: {cpu}", file=sys.stderr, flush=True)
    print(table(results, sync, alone), end="\n\n")
    missed = figures.report(goals(results, sync), ROOT / "build/bench/pipeline.json",
                            {"time_scale": options.time_scale, "cores": os.cpu_count(), "cases": results})
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
