#!/usr/bin/env python3
"""Kills, stops and cuts off the members of a real cluster by a seeded schedule, and has the checker decide.

    chaos.py [--seeds N] [--first-seed K] [--jobs J] [--keep] [--bin DIR]

Every seed is one run: redis-server, controller, two rollouts, reward and trainer as processes of their own.
Engine and model only take time (bench and tests share them); everything else is the real thing, with timeouts
scaled by 0.1. The last line is `N passed, N failed`; the evidence of a failed run is kept.
"""
import argparse
import concurrent.futures
import json
import os
import random
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import checker  # noqa: E402

STEPS, GROUPS, SIZE, ETA = 16, 4, 2, 2
RUN_SECONDS = 60  # that a run may take before it counts as stuck
JOB = f"""
name: chaos
seed: 1
model: {{init: random, config: {{model_type: llama, hidden_size: 16, num_hidden_layers: 1, num_attention_heads: 2,
  intermediate_size: 32, max_position_embeddings: 64}}}}
tokenizer: {{type: char, alphabet: "0123456789+="}}
dataset: {{type: arithmetic, operands: 2, digits: 2, train_rows: 4000}}
group_size: {SIZE}
prompts_per_step: {GROUPS}
rollout: {{max_new_tokens: 40, lease_ttl_ms: 1000}}
staleness: {{max: {ETA}, policy: wait}}
reward: {{timeout_ms: 1000, max_attempts: 100, components: {{length: {{type: length, max_tokens: 40, margin_tokens: 20}}}}}}
loss: {{preset: grpo}}
filter: {{zero_variance: false}}
trainer: {{steps: {STEPS}}}
optimizer: {{learning_rate: 1.0e-4}}
weight_sync: {{timeout_ms: 1000}}
checkpoint: {{every_steps: 4, keep_last: 2}}
"""


def free_port():
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]


class Proxy:
    """A TCP proxy in front of one address whose connections can be cut or held up."""

    def __init__(self, target):
        self.target, self.pairs, self.lock = target, set(), threading.Lock()
        self.hold_until = 0.0
        self.server = socket.create_server(("127.0.0.1", 0))
        self.port = self.server.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                client, _ = self.server.accept()
            except OSError:
                return
            try:
                upstream = socket.create_connection(("127.0.0.1", self.target), timeout=2)
                upstream.settimeout(None)
            except OSError:
                client.close()
                continue
            pair = (client, upstream)
            with self.lock:
                self.pairs.add(pair)
            for source, sink in (pair, pair[::-1]):
                threading.Thread(target=self.pump, args=(pair, source, sink), daemon=True).start()

    def pump(self, pair, source, sink):
        try:
            while data := source.recv(65536):
                wait = self.hold_until - time.monotonic()
                if wait > 0:
                    time.sleep(wait)
                sink.sendall(data)
        except OSError:
            pass
        self.close(pair)

    def close(self, pair):
        with self.lock:
            self.pairs.discard(pair)
        for sock in pair:
            try:
                # A reset, as when a host goes away.
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                sock.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
            sock.close()

    def cut(self):
        with self.lock:
            pairs = list(self.pairs)
        for pair in pairs:
            self.close(pair)

    def hold(self, seconds):
        self.hold_until = time.monotonic() + seconds

    def stop(self):
        self.server.close()
        self.cut()


class Cluster:
    """The processes of one run."""

    def __init__(self, folder, binaries):
        self.folder, self.bin = folder, binaries
        self.history = os.path.join(folder, "history")
        os.makedirs(self.history)
        os.makedirs(os.path.join(folder, "redis"))
        self.processes = {}
        self.redis_port, self.controller_port = free_port(), free_port()
        self.proxies = {name: Proxy(self.redis_port) for name in ("rollout-0", "rollout-1", "reward", "trainer", "controller")}
        self.lock = threading.Lock()

    def command(self, name):
        redis = f"127.0.0.1:{self.proxies[name].port}" if name in self.proxies else ""
        common = ["--redis", redis, "--listen", "127.0.0.1:0", "--http-listen", "", "--controller",
                  f"127.0.0.1:{self.controller_port}", "--name", name, "--drain-timeout-ms", "1000"]
        if name == "redis":
            return ["redis-server", "--port", str(self.redis_port), "--bind", "127.0.0.1", "--dir",
                    os.path.join(self.folder, "redis"), "--appendonly", "yes", "--appendfsync", "always", "--save", "",
                    "--logfile", os.path.join(self.folder, "redis.log")]
        if name == "controller":
            return [f"{self.bin}/freshet-controller", "--redis", redis, "--listen", f"127.0.0.1:{self.controller_port}",
                    "--http-listen", "", "--time-scale", "0.1"]
        if name == "reward":
            return [f"{self.bin}/freshet-reward", *common]
        if name == "trainer":
            return [f"{self.bin}/freshet-sim-trainer", *common, "--state-dir", os.path.join(self.folder, "state")]
        return [f"{self.bin}/freshet-sim-rollout", *common]

    def start(self, name):
        environment = dict(os.environ, FRESHET_SIM_HISTORY=self.history, FRESHET_SIM_STEP_SECONDS="0.01",
                           FRESHET_SIM_ENGINE="16 1.0 0.02 1.0 8 0.8")
        with open(os.path.join(self.folder, f"{name}.log"), "ab") as log, self.lock:
            self.processes[name] = subprocess.Popen(self.command(name), stdout=log, stderr=log, env=environment)

    def start_all(self):
        self.start("redis")
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline:
            try:
                socket.create_connection(("127.0.0.1", self.redis_port), timeout=1).close()
                break
            except OSError:
                time.sleep(0.01)
        for name in ("controller", "rollout-0", "rollout-1", "reward", "trainer"):
            self.start(name)

    def signal(self, name, number):
        process = self.processes.get(name)
        if process is not None and process.poll() is None:
            process.send_signal(number)

    def kill(self, name):
        self.signal(name, signal.SIGKILL)
        process = self.processes.get(name)
        if process is not None:
            process.wait()

    def stop_all(self):
        for name in list(self.processes):
            self.signal(name, signal.SIGCONT)
            self.kill(name)
        for proxy in self.proxies.values():
            proxy.stop()

    def freshet(self, *arguments, timeout=20):
        return subprocess.run([f"{self.bin}/freshet", *arguments, "--server", f"127.0.0.1:{self.controller_port}"],
                              capture_output=True, text=True, timeout=timeout)


ROLES = ("rollout-0", "rollout-1", "reward", "trainer", "controller", "redis")


def schedule(seed):
    """The faults of a seed: [(seconds, kind, role, length)]."""
    dice = random.Random(seed)
    faults = []
    for _ in range(dice.randint(2, 5)):
        role = dice.choice(ROLES)
        kinds = ["kill", "kill", "stop"] + (["cut", "hold"] if role != "redis" else [])
        faults.append((round(dice.uniform(0.05, 0.9), 3), dice.choice(kinds), role, round(dice.uniform(0.05, 0.5), 3)))
    return sorted(faults)


def inflict(cluster, faults, done):
    """Carries out the schedule; returns when everything that was hurt is healed."""
    begin = time.monotonic()
    healing = []
    for at, kind, role, length in faults:
        while (wait := begin + at - time.monotonic()) > 0 and not done.wait(min(wait, 0.01)):
            pass
        if kind == "kill":
            cluster.kill(role)
            healing.append((time.monotonic() + length, "start", role))
        elif kind == "stop":
            cluster.signal(role, signal.SIGSTOP)
            healing.append((time.monotonic() + length, "continue", role))
        elif kind == "cut":
            cluster.proxies[role].cut()
        else:
            cluster.proxies[role].hold(length)
        healing = heal(cluster, healing, time.monotonic())
    while healing:
        time.sleep(0.01)
        healing = heal(cluster, healing, time.monotonic())


def heal(cluster, healing, now):
    left = []
    for at, kind, role in healing:
        if at > now:
            left.append((at, kind, role))
        elif kind == "continue":
            cluster.signal(role, signal.SIGCONT)
        elif cluster.processes[role].poll() is not None:
            cluster.start(role)
    return left


def await_ready(cluster):
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        with open(os.path.join(cluster.folder, "controller.log")) as log:
            if "ready controller" in log.read():
                return
        time.sleep(0.01)
    raise RuntimeError("the controller did not become ready")


def submit(cluster):
    path = os.path.join(cluster.folder, "job.yaml")
    with open(path, "w") as file:
        file.write(JOB)
    deadline = time.monotonic() + 20
    while True:
        result = cluster.freshet("submit", path, "--id", "chaos")
        if result.returncode == 0:
            return
        if time.monotonic() > deadline or result.returncode not in (7, 8):
            raise RuntimeError(f"submit: exit {result.returncode}: {result.stderr.strip()}")
        time.sleep(0.05)


def await_end(cluster):
    """State of the job when it has ended, or what it hangs on."""
    deadline = time.monotonic() + RUN_SECONDS
    state = "UNKNOWN"
    while time.monotonic() < deadline:
        result = cluster.freshet("get", "chaos", "-o", "json")
        if result.returncode == 0:
            job = json.loads(result.stdout)
            state = job["state"].removeprefix("JOB_STATE_")
            if state in ("SUCCEEDED", "FAILED", "CANCELLED"):
                return state
        time.sleep(0.05)
    return f"stuck in {state}"


def final_weights(folder):
    """Text of the newest checkpoint's weights."""
    root = os.path.join(folder, "state", "jobs", "chaos", "checkpoints")
    newest = os.path.join(root, f"step-{STEPS}", "model.safetensors")
    with open(newest, "rb") as file:
        size = struct.unpack("<Q", file.read(8))[0]
        begin, end = json.loads(file.read(size))["uids"]["data_offsets"]
        file.seek(8 + size + begin)
        return file.read(end - begin).decode()


def run_seed(seed, binaries, keep):
    """One run. Returns (seed, faults, summary, folder)."""
    folder = tempfile.mkdtemp(prefix=f"freshet-chaos-{seed}-")
    cluster = Cluster(folder, binaries)
    planned = schedule(seed)
    faults, summary = [], ""
    done = threading.Event()
    begin = time.monotonic()
    try:
        cluster.start_all()
        await_ready(cluster)
        submit(cluster)
        storm = threading.Thread(target=inflict, args=(cluster, planned, done))
        storm.start()
        state = await_end(cluster)
        done.set()
        storm.join()
        with open(os.path.join(folder, "job.json"), "w") as file:
            json.dump({"eta": ETA, "groups_per_step": GROUPS, "group_size": SIZE, "steps": STEPS, "state": state}, file)
        export = cluster.freshet("ledger", "export", "chaos", os.path.join(folder, "export"))
        if export.returncode != 0:
            raise RuntimeError(f"ledger export: exit {export.returncode}: {export.stderr.strip()}")
        shutil.copy(os.path.join(folder, "export", "ledger.jsonl"), folder)
        with open(os.path.join(folder, "weights.txt"), "w") as file:
            file.write(final_weights(folder))
        faults, summary = checker.check(folder)
    except Exception as error:  # the run itself broke down: that is a failure of this seed
        faults.append(f"{type(error).__name__}: {error}")
    finally:
        done.set()
        cluster.stop_all()
    with open(os.path.join(folder, "schedule.json"), "w") as file:
        json.dump(planned, file)
    if not faults and not keep:
        shutil.rmtree(folder, ignore_errors=True)
    return seed, faults, f"{time.monotonic() - begin:.2f} s, {len(planned)} faults, {summary}", folder


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=25)
    parser.add_argument("--first-seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=2, help="runs at the same time")
    parser.add_argument("--keep", action="store_true", help="keep the evidence of good runs too")
    parser.add_argument("--bin", default=os.path.join(HERE, "..", "..", "build", "bin"))
    options = parser.parse_args()
    passed = failed = 0
    seeds = range(options.first_seed, options.first_seed + options.seeds)
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        for seed, faults, summary, folder in pool.map(
                lambda seed: run_seed(seed, os.path.abspath(options.bin), options.keep), seeds):
            passed, failed = passed + (not faults), failed + bool(faults)
            print(f"seed {seed}: {'ok' if not faults else 'FAILED'}: {summary}", flush=True)
            for fault in faults[:5]:
                print(f"  {fault}")
            if faults or options.keep:
                print(f"  evidence: {folder}", flush=True)
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
