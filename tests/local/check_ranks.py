#!/usr/bin/env python3
"""Trains with two ranks, one of which is killed and later stopped; then with ranks that divide the
state, one of which is killed; then interrupts and resumes with one rank; then trains in clusters and kills the other
rank: a child process, then processes that joined over gRPC, with and without a divided state.

usage: check_ranks.py PROGRAMS REPOSITORY
"""

import contextlib
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "testing"))
from launcher import Processes, SupervisedCluster, await_true  # noqa: E402

STEPS = 10
TIMEOUT_S = 240
OVERRIDES = ["trainer.ranks=2", f"trainer.steps={STEPS}", "trainer.threads=1", "prompts_per_step=8",
             "warmup.sft.steps=5", "eval=null", "checkpoint.every_steps=4"]


def ranks_of(pid):
    """Process ids of the further ranks of rank 0."""
    children = []
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # the thread has ended
            children += map(int, (task / "children").read_text().split())
    return children


def train(programs, folder, arguments, at_step):
    """Runs a job to its end; calls at_step(process, step) after each step. Returns its log."""
    command = [str(programs / "freshet"), "local", *map(str, arguments), "--json"]
    with (folder / "log").open("w+") as log:
        with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=log,
                              text=True) as process:
            try:
                for line in process.stdout:
                    row = json.loads(line)
                    if "step" in row and "reward_mean" in row:
                        at_step(process, row["step"])
                code = process.wait(TIMEOUT_S)
            finally:
                process.kill()
        log.seek(0)
        text = log.read()
    if code != 0:
        sys.exit(f"{text[-3000:]}\n{command}: exit {code}")
    return text


def check_complete(programs, folder):
    subprocess.run([programs / "freshet", "ledger", "verify", "run"], cwd=folder, check=True)
    rows = map(json.loads, (folder / "run" / "metrics.jsonl").read_text().splitlines())
    steps = [row["step"] for row in rows if "reward_mean" in row]
    if sorted(set(steps)) != list(range(1, STEPS + 1)):
        sys.exit(f"steps: {steps}")


def check_lost_ranks(programs, example, folder):
    sent = []

    def lose(process, step):
        signals = {2: signal.SIGKILL, 5: signal.SIGSTOP}
        if step in signals:
            ranks = ranks_of(process.pid)
            os.kill(ranks[0], signals[step])
            sent.append(ranks)

    log = train(programs, folder, [example, "--run-dir", "run", *settings()], lose)
    if [len(ranks) for ranks in sent] != [1, 1] or sent[0] == sent[1]:
        sys.exit(f"processes of the further ranks: {sent}")
    for reason in ("rank 1 was ended by signal 9", "rank 1 has said nothing for 5s"):
        lines = [line for line in log.splitlines() if "event=rank_lost" in line and reason in line]
        if len(lines) != 1:
            sys.exit(f"{log[-3000:]}\n{len(lines)} lines say: {reason}")
        print(lines[0])
    check_complete(programs, folder)


def check_lost_state(programs, example, folder):
    killed = []

    def lose(process, step):
        if step == 6 and not killed:
            killed.extend(ranks_of(process.pid))
            os.kill(killed[0], signal.SIGKILL)

    log = train(programs, folder, [example, "--run-dir", "run", *settings(), "--set", "trainer.sharding=full"], lose)
    if log.count("event=ranks_formed ranks=2") != 2 or "continuing from the newest checkpoint" not in log:
        sys.exit(log[-3000:])
    check_complete(programs, folder)


def check_resume(programs, example, folder):
    def interrupt(process, step):
        if step == 3:
            process.send_signal(signal.SIGINT)

    train(programs, folder, [example, "--run-dir", "run", *settings()], interrupt)
    train(programs, folder, ["--resume", "run", "--set", "trainer.ranks=1"],
          lambda process, step: ranks_of(process.pid) and sys.exit("a run of one rank has others"))
    check_complete(programs, folder)


def check_cluster(programs, example, folder):
    cluster = SupervisedCluster(programs / "freshet", folder)
    try:
        def job():
            return json.loads(cluster.freshet("get", "ranks", "-o", "json"))

        def describe():
            return f"\n{cluster.freshet('describe', 'ranks')}"

        cluster.freshet("submit", str(example), "--id", "ranks", *settings(), "--set", "trainer.steps=200")
        await_true("two steps", lambda: job().get("step", 0) >= 2, TIMEOUT_S, describe)
        ranks = ranks_of(cluster.process(role="trainer")["process"]["pid"])
        if len(ranks) != 1:
            sys.exit(f"processes of the further ranks: {ranks}")
        await_true("both ranks", lambda: [rank["last_collective"] for rank in job().get("ranks", ())].count(
            "all-reduce of gradients") == 2, TIMEOUT_S, describe)
        os.kill(ranks[0], signal.SIGKILL)
        await_true("the notice", lambda: "rank 1 was ended by signal 9" in describe(), TIMEOUT_S, describe)
        await_true("the end", lambda: job()["state"] in ("SUCCEEDED", "FAILED"), TIMEOUT_S, describe)
        if job()["state"] != "SUCCEEDED":
            sys.exit(describe())
        if re.search("event=(tokens_sent|samples_not_read)", cluster.freshet("logs", "ranks")):
            sys.exit(f"{cluster.freshet('logs', 'ranks')}\nthe rank has not read its samples")
        print(cluster.freshet("ledger", "verify", "ranks"))
    finally:
        cluster.down()


class RankedCluster(Processes):
    """trainer-0 has two ranks; rank-1 is the other one."""

    def program(self, role):
        return super().program("trainer" if role == "rank" else role)

    def command(self, name):
        if name != "rank-1":
            return super().command(name)
        return [self.program("rank"), "--rank", "1", "--ranks", "2", "--rendezvous", self.grpc["trainer-0"],
                "--redis", self.redis_address(name)]

    def flags(self, name):
        return ["--ranks", "2"] if name == "trainer-0" else []


def check_joined_rank(programs, example, folder, sharding="none", collectives=("all-reduce of gradients",)):
    """A rank that is a process of its own joins, is killed, and joins again. It also broadcasts its shard of the
    weights."""
    with RankedCluster(folder, programs) as cluster:
        cluster.start_redis()
        cluster.start_roles("controller-0")
        cluster.start_roles("rollout-0", "reward-0", "trainer-0")
        cluster.start_roles("rank-1")

        def job():
            return json.loads(cluster.freshet("get", "ranks", "-o", "json"))

        def describe():
            return f"\n{cluster.freshet('describe', 'ranks')}\n{cluster.log('trainer-0')[-2000:]}"

        def summing():
            return [rank.get("rank", 0) for rank in job().get("ranks", ())
                    if rank["last_collective"] in collectives]

        cluster.freshet("submit", str(example), "--id", "ranks", *settings(), "--set", "trainer.steps=100",
                        "--set", f"trainer.sharding={sharding}", "--set", "weight_sync.transport=gloo")
        await_true("both ranks", lambda: summing() == [0, 1], TIMEOUT_S, describe)
        cluster.kill("rank-1")
        await_true("the notice", lambda: re.search("rank_lost: .*rank 1 is gone", describe()), TIMEOUT_S, describe)
        cluster.start_roles("rank-1")
        await_true("both ranks again", lambda: summing() == [0, 1] or job()["state"] == "SUCCEEDED", TIMEOUT_S, describe)
        await_true("the end", lambda: job()["state"] in ("SUCCEEDED", "FAILED"), TIMEOUT_S, describe)
        log = cluster.log("trainer-0")
        if job()["state"] != "SUCCEEDED" or log.count("event=ranks_formed ranks=2") < 2:
            sys.exit(describe())
        if "event=tokens_sent" in log:
            sys.exit(f"{describe()}\nthe rank has not read its samples")
        if "event=weight_group backend=gloo engines=1 senders=2" not in log or "event=no_broadcasts" in log:
            sys.exit(f"{describe()}\nthe ranks have not broadcast the weights")
        print(cluster.freshet("ledger", "verify", "ranks"))


def check_joined_rank_with_a_part(programs, example, folder):
    check_joined_rank(programs, example, folder, "full", ("all-gather of outcomes", "gather of weights or state"))


def settings():
    return [word for override in OVERRIDES for word in ("--set", override)]


def main():
    programs = pathlib.Path(sys.argv[1]).resolve()
    example = pathlib.Path(sys.argv[2]).resolve() / "examples" / "arithmetic.yaml"
    for check in (check_lost_ranks, check_lost_state, check_resume, check_cluster, check_joined_rank,
                  check_joined_rank_with_a_part):
        with tempfile.TemporaryDirectory() as folder:
            check(programs, example, pathlib.Path(folder))
    return 0


if __name__ == "__main__":
    sys.exit(main())
