#!/usr/bin/env python3
"""Trains a small job on a real vLLM server, which is killed and hangs meanwhile.

    vllm_test.py --vllm HOME [--bin DIR] [--steps N] [--keep]

HOME is the folder that setup.sh prints. First runs vllm_routes_test on a server of its own. Then starts
helm/freshet/files/supervise.sh and `freshet cluster up --rollout-engine vllm`, and trains a model from random weights.
Of the server, once each: all processes are killed, all are stopped (SIGSTOP), and only the engine's process is stopped,
while HTTP still answers. Prints a table, then the last line `N passed, N failed`. Failed runs keep their folder. Linux
and Python 3.11; no other packages.
"""
import argparse
import json
import os
import pathlib
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/testing"))
from launcher import SupervisedCluster, await_true, free_port  # noqa: E402

JOB = """
name: vllm
seed: 3
model:
  init: random
  config: {model_type: llama, hidden_size: 128, num_hidden_layers: 3, num_attention_heads: 4, intermediate_size: 512,
    max_position_embeddings: 16}
tokenizer: {type: char, alphabet: "0123456789+="}
dataset: {type: arithmetic, operands: 2, digits: 1, train_rows: 80}
group_size: 8
prompts_per_step: 16
rollout: {engine: vllm, max_new_tokens: 3, max_inflight_groups: 48, max_hand_backs: 100}
staleness: {max: 2, policy: wait}
reward: {components: {exact: {type: exact_match}}}
loss: {preset: grpo, correction: {kind: tis, cap: 2.0}}
warmup: {sft: {steps: 30, batch_size: 64, learning_rate: 1.0e-3}}
trainer: {steps: STEPS}
optimizer: {learning_rate: 2.0e-4}
checkpoint: {every_steps: 10, keep_last: 2}
"""
FAULT_SECONDS = 900  # until the next server generates
JOB_SECONDS = 3600


class Server:
    """A real vLLM under its supervisor. `folder` is shared with the rollout."""

    def __init__(self, home, folder, log, *flags):
        self.folder, self.log, self.address = folder, log, f"127.0.0.1:{free_port()}"
        cores = ",".join(map(str, sorted(os.sched_getaffinity(0))))
        environment = {**os.environ, "VLLM": f"{home}/bin/vllm", "PATH": f"{home}/bin:{os.environ['PATH']}",
                       "LD_PRELOAD": f"{home}/lib/libiomp5.so", "VLLM_CPU_KVCACHE_SPACE": "1",
                       "VLLM_CPU_OMP_THREADS_BIND": cores}
        with open(log, "ab") as out:
            self.process = subprocess.Popen([ROOT / "helm/freshet/files/supervise.sh", folder, self.address.split(":")[1],
                                             "--enforce-eager", *flags], stdout=out, stderr=out, env=environment)

    def processes(self):
        """{pid: command line} of the server; its main process is the supervisor's only child that leads a session."""
        found = {}
        for path in pathlib.Path("/proc").glob("[0-9]*/stat"):
            try:
                fields = path.read_text().rsplit(")", 1)[1].split()
                parent, session, pid = int(fields[1]), int(fields[3]), int(path.parent.name)
                found[pid] = (parent, session, path.with_name("cmdline").read_bytes().replace(b"\0", b" ").decode())
            except (OSError, IndexError):
                continue
        main = [pid for pid, (parent, session, _) in found.items() if parent == self.process.pid and session == pid]
        return {pid: line for pid, (_, session, line) in found.items() if session in main}

    def signal(self, number, pattern=""):
        pids = [pid for pid, line in self.processes().items() if pattern in line]
        for pid in pids:
            os.kill(pid, number)
        return len(pids)

    def stop(self):
        self.process.terminate()
        self.process.wait()


class Job:
    def __init__(self, cluster, path, steps):
        self.cluster, self.steps = cluster, steps
        self.id = cluster.freshet("submit", path, "--id", "vllm").strip()

    def get(self):
        return json.loads(self.cluster.freshet("get", self.id, "-o", "json"))

    def step(self):
        job = self.get()
        if job["state"].removeprefix("JOB_STATE_") in ("FAILED", "CANCELLED"):
            raise RuntimeError(f"the job ended: {job}")
        return int(job.get("step", 0))

    def rows(self):
        return [json.loads(line) for line in self.cluster.freshet("metrics", self.id, "--json").splitlines()]


def metric(cluster, name, **labels):
    """A value of the rollout's metrics, 0 if absent."""
    address = cluster.process(name="rollout-1")["http"]
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    for line in text.splitlines():
        if line.startswith(name + "{") and all(f'{key}="{value}"' in line for key, value in labels.items()):
            return float(line.rsplit(" ", 1)[1])
    return 0.0


def generated(cluster):
    return metric(cluster, "freshet_tokens_total", phase="generated")


def hurt(cluster, server, number, pattern=""):
    """Signals the server. Returns (seconds until it is lost, seconds until the next one generates)."""
    restarts = metric(cluster, "freshet_rollout_engine_restarts_total")
    begin = time.monotonic()
    if not server.signal(number, pattern):
        raise RuntimeError(f"no process {pattern}: {server.processes()}")
    await_true("the server is lost", lambda: metric(cluster, "freshet_rollout_engine_restarts_total") > restarts,
               FAULT_SECONDS)
    lost = time.monotonic() - begin
    before = generated(cluster)
    await_true("the next server generates", lambda: generated(cluster) > before, FAULT_SECONDS)
    return lost, time.monotonic() - begin


def check_routes(options, folder, shared):
    """Returns a check: the server's routes for weights over NCCL, which it has also without a GPU."""
    shared.mkdir()
    server = Server(options.vllm, shared, folder / "routes-vllm.log", "--weight-transfer-config", '{"backend":"nccl"}')
    try:
        with open(folder / "routes.log", "wb") as out:
            test = subprocess.run([options.bin.parent / "tests/vllm_routes_test"], stdout=out, stderr=out, check=False,
                                  env={**os.environ, "FRESHET_VLLM_ADDRESS": server.address,
                                       "FRESHET_VLLM_DIR": str(shared)})
    finally:
        server.stop()
    passed = test.returncode == 0 and b"[  PASSED  ] 1 test." in (folder / "routes.log").read_bytes()
    return ("the routes for weights over NCCL answer", passed, f"exit code {test.returncode}")


def measure(options, folder, shared, started):
    """Returns (figures as (name, value, unit), checks as (name, passed, text))."""
    figures, checks = [], []
    server = Server(options.vllm, shared, folder / "vllm.log")
    started.append(server.stop)
    cluster = SupervisedCluster(options.bin / "freshet", folder, "--rollout-engine", "vllm", "--rollout-engine-address",
                                server.address, "--rollout-engine-dir", shared, "--envs", "0")
    started.append(cluster.down)
    path = folder / "job.yaml"
    path.write_text(JOB.replace("STEPS", str(options.steps)))
    begin = time.monotonic()
    job = Job(cluster, path, options.steps)
    await_true("the first tokens", lambda: generated(cluster) > 0 or job.step() < 0, FAULT_SECONDS)
    figures.append(("submit to first tokens, with the server's start", time.monotonic() - begin, "s"))
    quiet = options.steps // 3  # steps before the first fault
    faults = [("all processes killed", signal.SIGKILL, ""), ("all processes stopped", signal.SIGSTOP, ""),
              ("engine process stopped", signal.SIGSTOP, "VLLM::EngineCore")]
    for number, (name, code, pattern) in enumerate(faults):
        at = quiet + number * quiet // 2
        await_true(f"step {at}", lambda: job.step() >= at, JOB_SECONDS)
        step = job.step()
        lost, back = hurt(cluster, server, code, pattern)
        print(f"# step {step}: {name}: lost after {lost:.1f} s, generates after {back:.1f} s", flush=True)
        figures += [(f"{name}: detected", lost, "s"), (f"{name}: next server generates", back, "s")]
        checks.append((f"{name}: the job runs when it happens", step < options.steps, f"step {step}"))
    await_true("the end", lambda: job.get()["state"].removeprefix("JOB_STATE_") in ("SUCCEEDED", "FAILED", "CANCELLED"),
               JOB_SECONDS)
    end = job.get()
    checks.append(("the job succeeds", end["state"].endswith("SUCCEEDED"), end.get("reason", "")))
    restarts = metric(cluster, "freshet_rollout_engine_restarts_total")
    checks.append(("the server restarts once per fault", restarts == len(faults), f"{restarts:.0f} restarts"))
    rows = [row for row in job.rows() if "step" in row and "reward_mean" in row]
    checks.append(("every step is trained", len(rows) == options.steps, f"{len(rows)} steps"))
    rewards = [row["reward_mean"] for row in rows]
    first, last = statistics.mean(rewards[:5]), statistics.mean(rewards[-5:])
    checks.append(("the reward rises by 0.1", last >= first + 0.1, f"{first:.3f} to {last:.3f}"))
    stale = max(row["staleness_max"] for row in rows)
    checks.append(("staleness.max holds", stale <= 2, f"{stale:.0f}"))
    try:
        verified = cluster.freshet("ledger", "verify", job.id).strip().splitlines()[-1]
        checks.append(("the ledger verifies", True, verified))
    except RuntimeError as error:
        checks.append(("the ledger verifies", False, str(error)))
    calm = rows[1:quiet]
    seconds = calm[-1]["wall_seconds"] - rows[0]["wall_seconds"]
    figures += [("reward, mean of the first 5 steps", first, ""), ("reward, mean of the last 5 steps", last, ""),
                ("tokens generated, before the faults", sum(row["tokens_generated"] for row in calm) / seconds, "tokens/s"),
                ("step, before the faults", seconds / len(calm), "s"),
                ("weight swap, before the faults", statistics.median(row["weight_swap_seconds"] for row in calm), "s"),
                ("kl_behavior, mean before the faults", statistics.mean(row["kl_behavior"] for row in calm), "")]
    return figures, checks


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--vllm", type=pathlib.Path, required=True, help="folder of the installed vLLM")
    parser.add_argument("--bin", type=pathlib.Path, default=ROOT / "build/bin", help="folder of the programs")
    parser.add_argument("--steps", type=int, default=60, help="of the training; 0: none")
    parser.add_argument("--keep", action="store_true", help="also keep the folder of a passed run")
    options = parser.parse_args()
    folder = pathlib.Path(tempfile.mkdtemp(prefix="freshet-vllm-"))
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    shared = pathlib.Path(tempfile.mkdtemp(prefix="freshet-vllm-", dir=memory))
    started = []  # to stop, last first
    figures, checks = [], []
    try:
        checks.append(check_routes(options, folder, shared / "routes"))
        if options.steps > 0:
            figures, trained = measure(options, folder, shared, started)
            checks += trained
    except (RuntimeError, OSError, subprocess.TimeoutExpired) as error:
        checks.append(("the run completes", False, str(error)))
    finally:
        for stop in reversed(started):
            stop()
        shutil.rmtree(shared, ignore_errors=True)
    for name, value, unit in figures:
        print(f"{name:60} {value:10.4g} {unit}")
    for name, passed, text in checks:
        print(f"{name:60} {'passed' if passed else 'FAILED'}  {text}")
    failed = sum(not passed for _, passed, _ in checks)
    if failed or options.keep:
        print(f"evidence: {folder}")
    else:
        shutil.rmtree(folder, ignore_errors=True)
    print(f"{len(checks) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
