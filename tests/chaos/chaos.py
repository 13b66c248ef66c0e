#!/usr/bin/env python3
"""Injects faults into a real cluster by a seeded schedule and verifies the run with the checker.

    chaos.py [--full] [--seeds N] [--first-seed K] [--jobs J] [--keep] [--bin DIR]

Every seed is one run of redis-server, two controllers, two rollouts, reward and trainer as separate processes, for some
seeds also an environment with two workers, or an environment server, a sandbox and a judge. Engine and model are
simulated (tests/simulation); everything else is real, with all periods and deadlines scaled by 0.1. With --full engine
and model are real too, some trainers have several ranks, and the final weights must equal those of an undisturbed run
on one machine bit for bit. A seed also fails if no fault had an effect, or if the evidence is empty. The last line is
`N passed, N failed`. The evidence of failed runs is kept.
"""
import argparse
import atexit
import collections
import concurrent.futures
import glob
import hashlib
import itertools
import json
import os
import shutil
import struct
import subprocess
import sys
import tempfile
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import checker  # noqa: E402
import schedule  # noqa: E402
import services  # noqa: E402
from cluster import CONTROLLERS, ENVIRONMENTS, ROLLOUTS, WORKERS, Cluster, Profile  # noqa: E402

FAST_JOB = """
name: chaos
seed: 1
model: {init: random, config: {model_type: llama, hidden_size: 16, num_hidden_layers: 1, num_attention_heads: 2,
  intermediate_size: 32, max_position_embeddings: 64}}
group_size: 2
prompts_per_step: 4
rollout: {max_new_tokens: 40, lease_ttl_ms: 2000, max_attempts: 20}
staleness: {max: 2, policy: wait}
loss: {preset: grpo}
filter: {zero_variance: false}
trainer: {steps: 16}
optimizer: {learning_rate: 1.0e-4}
weight_sync: {timeout_ms: 1000, transport: TRANSPORT}
checkpoint: {every_steps: 4, keep_last: 2}
"""
FAST_ARITHMETIC = """
tokenizer: {type: char, alphabet: "0123456789+=<>!"}
dataset: {type: arithmetic, operands: 2, digits: 2, train_rows: 4000}
"""
FAST_LENGTH = FAST_ARITHMETIC + """
reward: {timeout_ms: 100, components: {length: {type: length, max_tokens: 40, margin_tokens: 20}}}
"""
FAST_EPISODES = FAST_ARITHMETIC + """
environment: {type: guess_number, max_turns: 3, max_turn_tokens: 6, step_timeout_ms: 500}
reward: {timeout_ms: 100, components: {found: {type: environment}}}
"""
FULL_JOB = """
name: chaos
seed: 1
model: {init: random, config: {model_type: llama, hidden_size: 32, num_hidden_layers: 2, num_attention_heads: 2,
  intermediate_size: 64, max_position_embeddings: 32}}
tokenizer: {type: char, alphabet: "0123456789=<>!?"}
group_size: 4
prompts_per_step: 8
staleness: {max: 0}
loss: {preset: grpo}
filter: {zero_variance: false}
trainer: {steps: STEPS, ranks: RANKS, sharding: SHARDING}
optimizer: {learning_rate: 1.0e-3}
weight_sync: {timeout_ms: 1000, transport: TRANSPORT}
checkpoint: {every_steps: 4, keep_last: 2}
"""
FULL_COPY = """
dataset: {type: copy, symbols: "0123456789", length: 3, train_rows: 800}
rollout: {max_new_tokens: 4, lease_ttl_ms: 2000}
reward: {timeout_ms: 1000, components: {low: {type: regex, pattern: "^[0-4]"}}}
"""
FULL_EPISODES = """
dataset: {type: template, prompt: "{q}", rows: [{q: "?"}]}
rollout: {max_new_tokens: 16, lease_ttl_ms: 2000}
environment: {type: guess_number, max_turns: 3, max_turn_tokens: 2}
reward: {timeout_ms: 1000, components: {found: {type: environment}}}
"""


BROKE_DOWN = "the run broke down:"
NOTHING_HURT = "no fault hurt anything: there was nothing to survive"
REDRAWS = 3  # of the faults of a seed if the drawn ones had no effect
ALONE = "rank 0 alone"  # in the trainer's log if it computes a step without the other ranks


class Scenario:
    """The job, programs and time limit of a run."""

    def __init__(self, profile, job, facts, seconds, stretch, environments=(), ranks=1, package=None):
        """package: of the services, or None."""
        self.profile, self.job, self.facts, self.seconds, self.stretch = profile, job, facts, seconds, stretch
        self.environments, self.ranks, self.package = environments, ranks, package

    @property
    def members(self):
        asked = services.SERVICES if self.package else ()
        return ("redis",) + CONTROLLERS + WORKERS + self.environments + asked

    @staticmethod
    def fast(binaries, signal="length", transport="auto", **programs):
        """Simulated engine and model. The weights are the multiset of the uids trained on. signal: "length",
        "episodes" of a built-in environment, or "services"."""
        facts = {"eta": 2, "policy": "wait", "groups_per_step": 4, "group_size": 2, "steps": 16}
        job = FAST_JOB.replace("TRANSPORT", transport)
        job += {"length": FAST_LENGTH, "episodes": FAST_EPISODES, "services": services.REWARD_JOB}[signal]
        package = None
        if signal == "services":
            facts["reward"] = services.REWARD
            folder = tempfile.mkdtemp(prefix="freshet-chaos-package-")
            atexit.register(shutil.rmtree, folder, ignore_errors=True)
            package = services.Package(folder)
        return Scenario(Profile(binaries, **programs), job, facts, seconds=120, stretch=1.0,
                        environments=ENVIRONMENTS if signal == "episodes" else (), package=package)

    @staticmethod
    def full(binaries, signal="length", transport="auto", ranks=1, sharding="none"):
        """The real engine and model. At staleness 0 the weights depend only on the seed and the ranks of each step,
        so they must equal those of an undisturbed `freshet local` bit for bit."""
        steps = 16 if ranks == 1 else 48  # so that most faults come during the job
        facts = {"eta": 0, "policy": "wait", "groups_per_step": 8, "group_size": 4, "steps": steps}
        profile = Profile(binaries, rollout="freshet-recorded-rollout", trainer="freshet-recorded-trainer")
        job = FULL_JOB.replace("TRANSPORT", transport).replace("STEPS", str(steps)).replace("RANKS", str(ranks))
        job = job.replace("SHARDING", sharding)
        job += FULL_EPISODES if signal == "episodes" else FULL_COPY
        with tempfile.TemporaryDirectory(prefix="freshet-chaos-local-") as folder:
            with open(os.path.join(folder, "job.yaml"), "w") as file:
                file.write(job.replace(transport, "auto"))  # a single process sends nothing
            subprocess.run([os.path.join(binaries, "freshet"), "local", "job.yaml", "--run-dir", "run"],
                           cwd=folder, check=True, capture_output=True)
            checkpoint = os.path.join(folder, "run", "checkpoints", f"step-{steps}")
            facts["weights_sha256"] = sha256(os.path.join(checkpoint, "model.safetensors"))
        return Scenario(profile, job, facts, seconds=180, stretch=6.0,
                        environments=ENVIRONMENTS if signal == "episodes" else (), ranks=ranks)


def sha256(path):
    with open(path, "rb") as file:
        return hashlib.sha256(file.read()).hexdigest()


def collect(cluster, scenario, state, storm):
    """Adds the remaining evidence to the folder of the histories."""
    folder, facts = cluster.folder, dict(scenario.facts, state=state)
    weights = cluster.checkpoint_weights("chaos", facts["steps"])
    if scenario.ranks > 1:
        facts["ranks"] = facts_of_ranks(cluster, storm)
        if ALONE in cluster.log("trainer"):
            facts["weights_sha256"] = None
    if "weights_sha256" in facts:
        facts["final_sha256"] = sha256(weights) if os.path.exists(weights) else "none"
    else:
        with open(os.path.join(folder, "weights.txt"), "w") as file:
            file.write(read_multiset(weights) if os.path.exists(weights) else "")
    with open(os.path.join(folder, "job.json"), "w") as file:
        json.dump(facts, file)
    export = cluster.freshet("ledger", "export", "chaos", os.path.join(folder, "export"))
    if export.returncode != 0:
        raise RuntimeError(f"{state}; ledger export: exit {export.returncode}: {export.stderr.strip()}")
    shutil.copy(os.path.join(folder, "export", "ledger.jsonl"), folder)


def facts_of_ranks(cluster, storm):
    watched = cluster.freshet("watch", "chaos", "--json", "--from-start", "--timeout", "60").stdout
    events = [json.loads(line) for line in watched.splitlines()]
    return {"groups": cluster.log("trainer").count("event=ranks_formed"),
            "killed": storm.killed_ranks if schedule.only_on_ranks(storm.faults) else [],
            "notices": sum(event.get("notice", {}).get("kind") == "rank_lost" for event in events)}


def read_multiset(path):
    """Returns the text in the simulated model's only tensor."""
    with open(path, "rb") as file:
        size = struct.unpack("<Q", file.read(8))[0]
        begin, end = json.loads(file.read(size))["uids"]["data_offsets"]
        file.seek(8 + size + begin)
        return file.read(end - begin).decode()


def run(name, scenario, faults, keep=False, seconds=None):
    """Runs a scenario under `faults`. Returns (violations, summary, folder of the evidence)."""
    folder = tempfile.mkdtemp(prefix=f"freshet-chaos-{name}-")
    cluster = Cluster(folder, scenario.profile, scenario.environments, scenario.package)
    violations, summary = [], ""
    done = threading.Event()
    storm = schedule.Storm(cluster, faults, done)
    begin = time.monotonic()
    try:
        cluster.start_all()
        cluster.submit("chaos", scenario.job.replace("GAMES", cluster.address_of("games") if scenario.package else ""))
        thread = threading.Thread(target=storm.run)
        thread.start()
        state = cluster.await_end("chaos", seconds or scenario.seconds)
        done.set()
        thread.join()
        collect(cluster, scenario, state, storm)
        violations, summary = checker.check(folder)
        if faults and storm.inflicted == 0:
            violations.append(NOTHING_HURT)
    except Exception as error:  # a run that breaks down counts as a failure of its seed
        violations.append(f"{BROKE_DOWN} {type(error).__name__}: {error}")
    finally:
        done.set()
        cluster.stop()
    if left := cluster.left_over():
        violations.append(f"processes {left} outlive their trainer")
    with open(os.path.join(folder, "schedule.json"), "w") as file:
        json.dump(faults, file)
    if not violations and not keep:
        shutil.rmtree(folder, ignore_errors=True)
    summary = f"{time.monotonic() - begin:.2f} s, {storm.inflicted} of {len(faults)} faults, {summary}"
    return violations, summary, folder


def variant(seed, full):
    """Returns (where the rewards of the seed come from, its weight transport) and with `full` the number of ranks and
    what they divide. On one host, "auto" is shared memory."""
    if not full:
        return {0: "episodes", 2: "services"}.get(seed % 4, "length"), "grpc_relay" if seed % 3 == 0 else "auto"
    return "length" if seed % 2 else "episodes", ("grpc_relay", "auto", "gloo")[seed % 3], (3, 2, 1, 1)[seed % 4], \
        ("none", "optimizer", "full")[seed // 4 % 3]


def play(seed, scenario, keep):
    """Runs a seed. Redraws the faults up to REDRAWS times if they have no effect."""
    for redraw in range(REDRAWS):
        faults = schedule.draw(f"{seed}/{redraw}", scenario.members, scenario.stretch, ranks=scenario.ranks)
        result = run(seed, scenario, faults, keep)
        if result[0] != [NOTHING_HURT] or redraw == REDRAWS - 1:
            return result
        shutil.rmtree(result[2], ignore_errors=True)


def report(name, violations, summary, folder, keep):
    print(f"{name}: {'FAILED' if violations else 'ok'}: {summary}", flush=True)
    for violation in violations[:5]:
        print(f"  {violation}")
    for line in last_words(folder) if violations else ():
        print(f"  {line}")
    if violations or keep:
        print(f"  evidence: {folder}", flush=True)


def last_words(folder, lines=5, width=300):
    """Yields the last log lines of each member, for readers without access to the evidence."""
    for path in sorted(glob.glob(os.path.join(folder, "*.log"))):
        with open(path, errors="replace") as file:
            for line in collections.deque(file, maxlen=lines):
                yield f"{os.path.basename(path)}: {line.rstrip()[:width]}"


def deaf(scenario, keep):
    """A run in which no call reaches an engine, so engines must pull published weights."""
    return run("deaf", scenario, [(0.0, "hold_calls", rollout, 1e6) for rollout in ROLLOUTS], keep)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=25)
    parser.add_argument("--first-seed", type=int, default=1)
    parser.add_argument("--full", action="store_true", help="use the real engine and model")
    parser.add_argument("--ranks", action="store_true", help="with --full: only seeds whose trainer has several ranks")
    parser.add_argument("--deaf", action="store_true", help="instead: one run in which no call reaches an engine")
    parser.add_argument("--jobs", type=int, default=2, help="concurrent runs")
    parser.add_argument("--keep", action="store_true", help="also keep the evidence of passed runs")
    parser.add_argument("--bin", default=os.path.join(HERE, "..", "..", "build", "bin"))
    options = parser.parse_args()
    binaries = os.path.abspath(options.bin)
    if options.deaf:
        violations, summary, folder = deaf(Scenario.fast(binaries), options.keep)
        report("deaf engines", violations, summary, folder, options.keep)
        print(f"{int(not violations)} passed, {int(bool(violations))} failed")
        return 1 if violations else 0
    if options.ranks and not options.full:
        parser.error("--ranks: needs --full")
    seeds = list(itertools.islice(
        (seed for seed in itertools.count(options.first_seed) if not options.ranks or variant(seed, True)[2] > 1),
        options.seeds))
    variants = {seed: variant(seed, options.full) for seed in seeds}
    if any(kind[0] == "services" for kind in variants.values()) and (missing := services.missing()):
        print(f"without services: {services.PYTHON} lacks {missing}; FRESHET_TEST_PYTHON selects another interpreter")
        variants = {seed: ("length", *kind[1:]) if kind[0] == "services" else kind for seed, kind in variants.items()}
    make = Scenario.full if options.full else Scenario.fast
    scenarios = {kind: make(binaries, *kind) for kind in sorted(set(variants.values()))}
    passed = failed = 0
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        results = pool.map(lambda seed: play(seed, scenarios[variants[seed]], options.keep), seeds)
        for seed, (violations, summary, folder) in zip(seeds, results):
            passed, failed = passed + (not violations), failed + bool(violations)
            report(f"seed {seed}", violations, summary, folder, options.keep)
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
