#!/usr/bin/env python3
"""Measures a real cluster on this machine: time to the first step, and the cost of process failures.

    cluster.py [--quick] [--kills N] [--hangs N] [--minutes M] [--interval S] [--seed K] [--seeds N | --no-accuracy]

Starts `freshet cluster up` with its own state folder and ports, trains the examples' small models and measures:
- the time from submit to the first step;
- after kill -9 of a rollout or the trainer, the time until the controller notices and until everything works again;
- the same for processes that hang (SIGSTOP), which the controller notices only by missing heartbeats;
- steps per second while a random role is killed every --interval seconds, relative to undisturbed periods before and
  after (effective training time ratio, ETTR);
- the accuracy of arithmetic.yaml on the cluster and with `freshet local` for the same seeds. This takes minutes;
  --no-accuracy and --quick skip it.
Prints one line per figure with its goal and writes build/bench/cluster.json. Exits 1 if a goal is missed. Linux only;
standard library only.
"""
import argparse
import collections
import datetime
import json
import os
import pathlib
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time

import figures

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests/testing"))
from launcher import SupervisedCluster, call, role_of  # noqa: E402

# After this time in state ready, a process restarts without backoff (cli/cluster/cluster_plan.h).
STABLE_SECONDS = 31
KNOWN = {"rollout": ("worker_left", "worker_lost"), "trainer": ("trainer_restarted", "worker_lost")}
ROLES = ("rollout-1", "rollout-2", "reward-1", "trainer-1", "controller-1", "redis")


class Cluster(SupervisedCluster):
    def __init__(self, program, folder):
        begin = time.monotonic()
        super().__init__(program, folder, "--rollouts", "2")
        self.up_seconds = time.monotonic() - begin

    def workers(self):
        """Workers by name. Empty while no controller answers."""
        try:
            return {worker["name"]: worker for worker in json.loads(self.freshet("top", "--json", timeout=10))["workers"]}
        except (RuntimeError, subprocess.TimeoutExpired):
            return {}

    def hurt(self, name, number):
        """Sends a signal. Returns the time before it."""
        now = time.time()
        self.signal(number, name=name)
        return now

    def await_stable(self, name):
        while (left := self.process(name=name)["started"] / 1000 + STABLE_SECONDS - time.time()) > 0:
            time.sleep(left)


class Follower:
    """Collects the events of a running job. `when` is the event's own timestamp."""

    def __init__(self, cluster, job):
        self.cluster, self.job, self.lock, self.stopped = cluster, job, threading.Condition(), False
        self.notices, self.steps, self.state = [], {}, ""  # (when, kind, text); step -> time of its first commit
        self.process, self.cursors = None, set()
        self.thread = threading.Thread(target=self.follow, daemon=True)
        self.thread.start()

    def follow(self):
        while not self.stopped:
            self.process = subprocess.Popen([self.cluster.program, "watch", self.job, "--json", "--from-start"], text=True,
                                            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=self.cluster.environment)
            for line in self.process.stdout:
                self.take(json.loads(line))
            self.process.wait()
            time.sleep(0.2)

    def take(self, event):
        with self.lock:
            if event["cursor"] in self.cursors:
                return
            self.cursors.add(event["cursor"])
            when = datetime.datetime.fromisoformat(event["time"].replace("Z", "+00:00")).timestamp()
            if "notice" in event:
                self.notices.append((when, event["notice"]["kind"], event["notice"]["text"]))
            elif "state" in event:
                self.state = event["state"]["state"]
            elif "step" in event.get("metrics", {}):
                self.steps.setdefault(event["metrics"]["step"], when)
            self.lock.notify_all()

    def wait(self, what, predicate, seconds):
        """Calls `predicate` after every event and returns its first true value."""
        deadline = time.monotonic() + seconds
        with self.lock:
            while not (value := predicate()):
                left = deadline - time.monotonic()
                if left <= 0 or self.state in ("FAILED", "CANCELLED"):
                    raise RuntimeError(f"{what}: not within {seconds} s; job {self.state}; last notices: {self.notices[-3:]}")
                self.lock.wait(min(left, 1))
            return value

    def steps_between(self, begin, end):
        with self.lock:
            return sum(begin <= when < end for when in self.steps.values())

    def stop(self):
        self.stopped = True
        if self.process is not None:
            self.process.terminate()
        self.thread.join()


def long_job(folder):
    """arithmetic.yaml without warm-up and evaluation, and with practically unlimited steps."""
    lines = (ROOT / "examples/arithmetic.yaml").read_text().splitlines()
    path = pathlib.Path(folder) / "long.yaml"
    path.write_text("\n".join(line for line in lines if not line.startswith(("warmup:", "eval:"))) + "\n")
    return path, ["--set", "trainer.steps=1000000", "--set", "optimizer.schedule=constant"]


def first_steps(cluster, runs):
    """Seconds from submit to the end of the first step."""
    seconds = []
    for run in range(runs):
        begin = time.time()
        job = f"first-{run}"
        cluster.freshet("submit", ROOT / "examples/smoke.yaml", "--id", job)
        follower = Follower(cluster, job)
        seconds.append(follower.wait("the first step", lambda: follower.steps.get(1), 120) - begin)
        cluster.freshet("cancel", job)
        follower.stop()
        while json.loads(cluster.freshet("get", job, "-o", "json"))["state"] != "CANCELLED":
            time.sleep(0.1)
        print(f"# submit to first step: {seconds[-1]:.2f} s", file=sys.stderr, flush=True)
    return seconds


def await_rollout(cluster, name, epoch):
    """Waits until the worker has a later epoch, a job and weights. Returns the time."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        worker = cluster.workers().get(name, {})
        if worker.get("epoch", 0) > epoch and worker.get("jobs") and worker.get("version", -1) >= 0:
            return time.time()
        time.sleep(0.1)
    raise RuntimeError(f"{name} did not recover")


def hurt(cluster, follower, name, number, heal_after=None):
    """Signals a process. Returns the seconds until the controller noticed and until everything worked again."""
    role = role_of(name)
    epoch = cluster.workers()[name]["epoch"]
    last = max(follower.steps)
    hurt_at = cluster.hurt(name, number)

    def known():
        return next((when for when, kind, text in follower.notices
                     if when >= hurt_at and kind in KNOWN[role] and name in text), None)

    known_at = follower.wait(f"{name} hurt", known, 60)
    healed_at = hurt_at
    if heal_after is not None:
        time.sleep(heal_after)
        healed_at = cluster.hurt(name, signal.SIGCONT)
    if role == "trainer":
        with follower.lock:
            last = max(follower.steps) if heal_after is not None else last
        # The step in progress at the time of the signal may still be reported.
        back_at = follower.wait("a new step", lambda: next(
            (when for step, when in sorted(follower.steps.items()) if step > last and when > max(healed_at, known_at)), None), 120)
    else:
        back_at = await_rollout(cluster, name, epoch)
    return known_at - hurt_at, back_at - healed_at


def deaths(cluster, follower, count, patient):
    """Kills a rollout and the trainer in turn, `count` times each. Returns (known, back) seconds by role."""
    seconds = collections.defaultdict(list)
    for turn in range(count):
        for name in (f"rollout-{1 + turn % 2}", "trainer-1"):
            if patient:
                cluster.await_stable(name)
            role = role_of(name)
            seconds[role].append(hurt(cluster, follower, name, signal.SIGKILL))
            print(f"# {name} killed: known after {seconds[role][-1][0]:.2f} s, all works after {seconds[role][-1][1]:.2f} s",
                  file=sys.stderr, flush=True)
            time.sleep(3)
    return seconds


def hangs(cluster, follower, count):
    seconds = collections.defaultdict(list)
    for turn in range(count):
        for name in (f"rollout-{1 + turn % 2}", "trainer-1"):
            role = role_of(name)
            seconds[role].append(hurt(cluster, follower, name, signal.SIGSTOP, heal_after=0.5))
            print(f"# {name} hangs: known after {seconds[role][-1][0]:.2f} s, all works {seconds[role][-1][1]:.2f} s after "
                  "it goes on", file=sys.stderr, flush=True)
            time.sleep(3)
    return seconds


def effective_time(cluster, follower, options):
    """Steps per second while a random role is killed every interval, relative to undisturbed periods."""
    dice = random.Random(options.seed)
    quiet = max(options.interval, 30)

    def rate(begin, end):
        return follower.steps_between(begin, end) / (end - begin)

    def pause(seconds):
        begin = time.time()
        time.sleep(seconds)
        return rate(begin, time.time())

    before = pause(quiet)
    begin, order, victims = time.time(), [], []
    for turn in range(max(1, round(options.minutes * 60 / options.interval))):
        if not order:
            order = list(ROLES)
            dice.shuffle(order)
        victims.append(order.pop())
        cluster.hurt(victims[-1], signal.SIGKILL)
        time.sleep(max(0, begin + (turn + 1) * options.interval - time.time()))
        print(f"# {victims[-1]} killed: {rate(time.time() - options.interval, time.time()):.2f} steps/s in its "
              f"{options.interval:.0f} s", file=sys.stderr, flush=True)
    hurt_rate = rate(begin, time.time())
    after = pause(quiet)
    share = hurt_rate / statistics.mean([before, after])
    return {"before": before, "hurt": hurt_rate, "after": after, "share": share, "victims": victims,
            "lost_seconds": options.interval * (1 - share)}


def cluster_accuracy(cluster, seed):
    job = f"arithmetic-{seed}"
    cluster.freshet("submit", ROOT / "examples/arithmetic.yaml", "--id", job, "--set", f"seed={seed}", "--wait", timeout=1800)
    cluster.freshet("ledger", "verify", job)
    return last_accuracy(cluster.freshet("metrics", job, "--json"))


def last_accuracy(text):
    rows = [row for row in map(json.loads, text.splitlines()) if "eval_name" in row]
    return max(rows, key=lambda row: row["policy_version"])["eval_accuracy"]


def local_accuracy(freshet, seed, folder):
    run = pathlib.Path(folder) / f"local-{seed}"
    call(freshet, "local", ROOT / "examples/arithmetic.yaml", "--run-dir", run, "--set", f"seed={seed}", timeout=1800)
    return last_accuracy((run / "metrics.jsonl").read_text())


def accuracies(cluster, options, folder):
    pairs = []
    for seed in range(1, options.seeds + 1):
        pairs.append((cluster_accuracy(cluster, seed), local_accuracy(options.freshet, seed, folder)))
        print(f"# arithmetic seed {seed}: cluster {pairs[-1][0]:.3f}, local {pairs[-1][1]:.3f}", file=sys.stderr, flush=True)
    return pairs


def death_figures(what, seconds, limits):
    rows = []
    for role, (known, back) in limits.items():
        for text, limit, values in (("known", known, [pair[0] for pair in seconds[role]]),
                                    ("all works again", back, [pair[1] for pair in seconds[role]])):
            name = f"{role} {what}, {text}"
            rows.append(figures.bound(f"{name}, median of {len(values)}", statistics.median(values), limit, "s", True))
            rows.append(figures.bound(f"{name}, longest", max(values), limit, "s", True))
    return rows


def measure(options, folder):
    cluster = Cluster(options.freshet, folder)
    raw = {"up_seconds": cluster.up_seconds}
    try:
        starts = raw["first_step_seconds"] = first_steps(cluster, 1 if options.quick else 3)
        rows = [figures.bound(f"submit to first step, longest of {len(starts)}", max(starts), 10, "s", True)]
        if options.kills + options.hangs + options.minutes > 0:
            path, overrides = long_job(folder)
            cluster.freshet("submit", path, "--id", "long", *overrides)
            follower = Follower(cluster, "long")
            follower.wait("five steps", lambda: 5 in follower.steps, 120)
            if options.kills > 0:
                raw["kills"] = deaths(cluster, follower, options.kills, not options.quick)
                rows += death_figures("killed", raw["kills"], {"rollout": (3, 10), "trainer": (5, 10)})
            if options.hangs > 0:
                raw["hangs"] = hangs(cluster, follower, options.hangs)
                rows += death_figures("hangs", raw["hangs"], {"rollout": (3, 10), "trainer": (5, 10)})
            if options.minutes > 0:
                for name in ROLES if not options.quick else ():
                    cluster.await_stable(name)
                ettr = raw["ettr"] = effective_time(cluster, follower, options)
                rows.append(figures.bound("ETTR, one random role killed every 60 s", 1 - ettr["lost_seconds"] / 60, 0.9, "share"))
            cluster.freshet("cancel", "long")
            follower.stop()
            cluster.freshet("ledger", "verify", "long", timeout=600)
        if options.accuracy:
            pairs = raw["accuracy"] = accuracies(cluster, options, folder)
            gap = abs(statistics.median(pair[0] for pair in pairs) - statistics.median(pair[1] for pair in pairs))
            rows.append(figures.bound("arithmetic: accuracy over the cluster less local, medians", gap, 0.02, "share", True))
    finally:
        cluster.down()
    return rows, raw


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--peers", action="store_true", help="no effect: the bounds are fixed")
    parser.add_argument("--kills", type=int, default=5, help="number for a rollout, and for the trainer")
    parser.add_argument("--hangs", type=int, default=3, help="number for a rollout, and for the trainer")
    parser.add_argument("--minutes", type=float, default=6, 
                        help="minutes of kills for the effective training time; 0: none")
    parser.add_argument("--interval", type=float, default=60, help="seconds between two kills")
    parser.add_argument("--seed", type=int, default=1, help="seed of the order of kills")
    parser.add_argument("--quick", action="store_true", help="2 kills, 1 hang, three kills 20 s apart, no accuracy; "
                        "does not wait for stable processes")
    parser.add_argument("--accuracy", action=argparse.BooleanOptionalAction,
                        help="compare the accuracy of arithmetic.yaml, which takes minutes; default: unless --quick")
    parser.add_argument("--seeds", type=int, default=3, help="number of seeds of the accuracy comparison")
    parser.add_argument("--freshet", type=pathlib.Path, default=ROOT / "build/bin/freshet")
    options = parser.parse_args()
    if options.accuracy is None:
        options.accuracy = not options.quick
    if options.quick:
        options.kills, options.hangs, options.minutes, options.interval = 2, 1, 1, 20
    with tempfile.TemporaryDirectory(prefix="freshet-cluster-") as folder:
        rows, raw = measure(options, folder)
    if "ettr" in raw:
        ettr = raw["ettr"]
        print(f"steps per second: {ettr['before']:.2f} before, {ettr['hurt']:.2f} with a death every {options.interval:.0f} s "
              f"({', '.join(ettr['victims'])}), {ettr['after']:.2f} after; a death costs {ettr['lost_seconds']:.1f} s")
    missed = figures.report(rows, ROOT / "build/bench/cluster.json", {"cores": os.cpu_count(), **raw})
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
