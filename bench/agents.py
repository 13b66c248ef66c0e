#!/usr/bin/env python3
"""Trains examples of rewards and environments beside control runs that lack what they show, and measures the sandbox.

    agents.py [--only NAME] [--seeds 3] [--rounds 5] [--bin build/bin]

sandbox    programs per second of freshet-sandbox, beside a plain subprocess for each program, in alternating order
generate   tokens per second of a job of kind generate, beside its engine alone with as many prompts and samples of the same
           lengths at a time, in alternating order
code       examples/code.yaml, and as a control the same with a reward for the form of a program instead of its output
openenv    examples/successor.yaml, and as a control the same without seeing the letter
turns      the same, half as long, and as a control without an advantage for each turn
mcp        examples/lookup.yaml, and as a control the same without the tool
tasks      examples/tasks.yaml, and as a control the same without the curriculum
team       examples/team, two policies, and as a control the same with a worker that does not learn
duplicates examples/team/delegation.yaml with loss.not_asked: duplicate, and as a control with drop
notes      examples/notes.yaml, and as a control the same in one conversation, which the context cuts off
budget     examples/budget.yaml, and as a control the same without a reward for the budget
adaptive   examples/adaptive.yaml, and as a control the same with groups of one size and no limit of their own
replay     examples/sparse.yaml, and as a control the same with a success pool that stays empty
entropy    examples/smoke.yaml at a learning rate that is too high for it, with loss.entropy_control, and as a control without
calls      examples/calculator.yaml with loss.token_weights for the tool calls, and as a control without
certain    examples/calculator.yaml with loss.turn_entropy_share, and as a control without

Prints one line per figure and writes build/bench/agents.json. Exits with 1 if a goal is missed.
"""
import argparse
import concurrent.futures
import contextlib
import http.client
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

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "bench"), str(ROOT / "tests/testing")]
import example_servers  # noqa: E402
import figures  # noqa: E402
import peer_processes  # noqa: E402

CLIENTS = 2
PROGRAMS = 400  # of each round
SECONDS = 600
PYTHON = "/usr/bin/python3"
GROUPS = 8  # of the job that generates, and samples of each
TOKENS = 128  # of its prompts, and of its samples
STEPS = 5
PROGRAM = "n = int(input())\nprint(sum(i * i for i in range(n)))"


@contextlib.contextmanager
def sandbox(binaries):
    process = subprocess.Popen([str(binaries / "freshet-sandbox"), "--listen", "127.0.0.1:0"], stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, text=True)
    try:
        line = process.stdout.readline()
        if not line.startswith("ready sandbox http="):
            sys.exit(f"agents: the sandbox does not start: {process.stderr.read()}")
        threading.Thread(target=process.stderr.read, daemon=True).start()
        yield line.strip().split("=")[1]
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(SECONDS)


def programs_per_second(run):
    with concurrent.futures.ThreadPoolExecutor(CLIENTS) as pool:
        begin = time.monotonic()
        list(pool.map(run, range(PROGRAMS)))
        return PROGRAMS / (time.monotonic() - begin)


def throughput(binaries, rounds):
    """Rows for the sandbox's speed."""
    local = threading.local()
    with sandbox(binaries) as address:
        def ours(_):
            connection = getattr(local, "connection", None) or http.client.HTTPConnection(address, timeout=SECONDS)
            local.connection = connection
            connection.request("POST", "/run_code", json.dumps({"language": "python", "code": PROGRAM, "stdin": "9\n"}),
                               {"Content-Type": "application/json"})
            answer = json.loads(connection.getresponse().read())
            assert answer["run_result"]["stdout"] == "204\n", answer

        def plain(_):
            done = subprocess.run([PYTHON, "-c", PROGRAM], input="9\n", capture_output=True, text=True, check=True)
            assert done.stdout == "204\n", done

        speeds = {ours: [], plain: []}
        for number in range(rounds + 1):
            for run in (ours, plain) if number % 2 else (plain, ours):
                local = threading.local()  # the threads of a round have connections of their own
                speed = programs_per_second(run)
                if number > 0:
                    speeds[run].append(speed)
    fast, slow = statistics.median(speeds[ours]), statistics.median(speeds[plain])
    return [{"name": "sandbox: Python programs", "ours": fast, "peer": slow, "peer_name": "subprocess",
             "ratio": fast / slow, "unit": "1/s", "goal": 3}]


def generation_job(folder, model, threads):
    """Writes a job whose engine has GROUPS groups of GROUPS samples at a time, of TOKENS tokens after prompts of TOKENS."""
    alphabet = "".join(chr(0x4E00 + i) for i in range(8191))  # with the end token, the ids of the model
    draw = random.Random(1)
    rows = [{"text": "".join(draw.choices(alphabet, k=TOKENS))} for _ in range(8 * GROUPS)]
    job = {"name": "generate", "kind": "generate", "model": {"path": str(model), "dtype": "bf16"},
           "tokenizer": {"type": "char", "alphabet": alphabet},
           "dataset": {"type": "template", "prompt": "{text}", "rows": rows},
           "group_size": GROUPS, "prompts_per_step": GROUPS,
           "rollout": {"max_new_tokens": TOKENS, "max_sequences": GROUPS * GROUPS, "threads": threads},
           "reward": {"components": {"length": {"type": "length", "max_tokens": TOKENS}}},
           "trainer": {"steps": STEPS}}
    path = pathlib.Path(folder) / "job.yaml"
    path.write_text(json.dumps(job))
    return path


def generated_per_second(binaries, model, threads):
    """Tokens of the files after the first one, by the time from the first to the last."""
    with tempfile.TemporaryDirectory() as folder:
        command = [str(binaries / "freshet"), "local", str(generation_job(folder, model, threads)), "--run-dir",
                   f"{folder}/run"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS)
        if done.returncode != 0:
            sys.exit(f"agents: {' '.join(command)}:\n{done.stderr[-2000:]}")
        steps = [json.loads(line) for line in open(f"{folder}/run/metrics.jsonl")]
        tokens = 0
        for number in range(2, STEPS + 1):
            for line in open(f"{folder}/run/generated/step-{number:08}.jsonl"):
                tokens += json.loads(line)["tokens"]
    # The model's samples are random tokens, of which one in 8192 is the end token.
    assert tokens > 0.95 * (STEPS - 1) * GROUPS * GROUPS * TOKENS, tokens
    return tokens / (steps[-1]["wall_seconds"] - steps[0]["wall_seconds"])


def generate(binaries, rounds):
    """Rows for the share of its engine's speed that a job of kind generate has."""
    program = binaries.parent / "bench" / "rollout_bench"
    model = peer_processes.model_directory(program, "T")
    threads = len(os.sched_getaffinity(0))

    def alone():
        lengths = {"groups": GROUPS, "samples": GROUPS, "prompt": TOKENS, "generate": TOKENS, "threads": threads}
        flags = [word for name, value in lengths.items() for word in (f"--{name}", str(value))]
        done = subprocess.run([str(program), "decode", "--model", "T", *flags], capture_output=True, text=True, check=True,
                              timeout=SECONDS)
        result = json.loads(done.stdout.splitlines()[-1])
        return result["tokens"] / result["seconds"]

    def job():
        return generated_per_second(binaries, model, threads)

    speeds = {job: [], alone: []}
    for number in range(rounds):
        for run in (job, alone) if number % 2 else (alone, job):
            speeds[run].append(run())
    ours, peer = statistics.median(speeds[job]), statistics.median(speeds[alone])
    return [{"name": "generate: tokens written to files", "ours": ours, "peer": peer, "peer_name": "the engine alone",
             "ratio": ours / peer, "unit": "tokens/s", "goal": 0.9}]


def run_example(binaries, job, seed, flags, settings, policy=""):
    """Trains an example. Returns the rows of samples.jsonl and metrics.jsonl (of the policy), and the seconds."""
    with tempfile.TemporaryDirectory() as folder:
        command = [str(binaries / "freshet"), "local", str(ROOT / "examples" / job), "--run-dir", f"{folder}/run", *flags]
        for setting in (f"seed={seed}", "output.samples_per_step=1000000", *settings):
            command += ["--set", setting]
        begin = time.monotonic()
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=SECONDS)
        seconds = time.monotonic() - begin
        if done.returncode != 0:
            sys.exit(f"agents: {' '.join(command)}:\n{done.stderr[-2000:]}")
        samples, metrics = ([json.loads(line) for line in open(f"{folder}/run/{policy}/{name}.jsonl")]
                            for name in ("samples", "metrics"))
    return samples, metrics, seconds


def train(binaries, job, seed, flags, settings, policy=""):
    """Trains an example. Returns the mean of each component of the reward in the last ten steps, and the seconds."""
    samples, _, seconds = run_example(binaries, job, seed, flags, settings, policy)
    last = max(sample["step"] for sample in samples)
    late = [sample["components"] for sample in samples if sample["step"] > last - 10]
    return {name: statistics.mean(sample[name] for sample in late) for name in late[0]}, seconds


def compare(binaries, seeds, job, component, flags, settings, control):
    """Trains with the settings, and as a control with `control` too. Returns both results and the longest time."""
    trained, controlled, times = [], [], []
    for seed in range(1, seeds + 1):
        for more, results in (((), trained), (control, controlled)):
            means, seconds = train(binaries, job, seed, flags, (*settings, *more))
            results.append(means[component])
            times.append(seconds)
    return trained, controlled, max(times)


def by_seed(trained, controlled):
    return f"seeds: {', '.join(f'{v:.3f}' for v in trained)}; control: {', '.join(f'{v:.3f}' for v in controlled)}"


def relative(name, trained, controlled):
    """A row for a median that must be at least 0.95 of the control's."""
    row = figures.bound(name, statistics.median(trained) / max(statistics.median(controlled), 1e-9), 0.95, "of 1")
    return {**row, "note": by_seed(trained, controlled)}


def rows_of(name, what, peer, goal, trained, controlled, longest, unit="of 1", lower_is_better=False):
    ours, theirs = statistics.median(trained), statistics.median(controlled)
    return [{"name": f"{name}: {what}", "ours": ours, "peer": theirs, "peer_name": peer,
             "ratio": theirs / ours if lower_is_better else ours / max(theirs, 1e-9), "unit": unit, "goal": goal,
             "note": by_seed(trained, controlled)},
            figures.bound(f"{name}: longest run", longest, 45, "s", lower_is_better=True)]


def code(binaries, seeds):
    form = 'reward.components={passed: {type: code, test_timeout_ms: 2000, weight: 0}, ' \
           "form: {type: regex, match: whole, pattern: 'print\\(.*\\)'}}"
    with sandbox(binaries) as address:
        flags = ["--sandbox", f"http://{address}"]
        results = compare(binaries, seeds, "code.yaml", "passed", flags, (), (form,))
    return rows_of("code", "programs that pass, after training", "rewarded for their form", 1.5, *results)


def openenv(binaries, seeds):
    with example_servers.environments("successor") as address:
        results = compare(binaries, seeds, "successor.yaml", "right", [], (f"environment.address={address}",),
                          ("environment.name=blind",))
    return rows_of("openenv", "right answers, after training", "without seeing the letter", 1.5, *results)


def turns(binaries, seeds):
    with example_servers.environments("successor") as address:
        settings = (f"environment.address={address}", "trainer.steps=20")
        results = compare(binaries, seeds, "successor.yaml", "right", [], settings, ("loss={preset: grpo}",))
    return rows_of("turns", "right answers, steps 11 to 20", "one advantage per episode", 1.1, *results)


def mcp(binaries, seeds):
    with example_servers.environments("lookup") as address:
        results = compare(binaries, seeds, "lookup.yaml", "right", [], (f"environment.address={address}",),
                          ("environment.name=untooled",))
    return rows_of("mcp", "right answers, after training", "without the tool", 1.5, *results)


def tasks(binaries, seeds):
    trained, controlled, times = [], [], []
    for seed in range(1, seeds + 1):
        # With a least factor of 1 the weights are the shares.
        for settings, results in (((), trained), (("curriculum.least_factor=1",), controlled)):
            _, rows, seconds = run_example(binaries, "tasks.yaml", seed, [], settings)
            results.append([row["eval_accuracy"] for row in rows if row.get("eval_name") == "sums"][-1])
            times.append(seconds)
    return rows_of("tasks", "right sums, held out", "without the curriculum", 1.15, trained, controlled, max(times))


def team(binaries, seeds):
    trained, controlled, times = [], [], []
    for seed in range(1, seeds + 1):
        for more, results in (((), trained), (("policies.worker.optimizer.learning_rate=1.0e-12",), controlled)):
            with example_servers.team() as (planner, worker):
                addresses = (f"policies.planner.environment.address={planner}",
                             f"policies.worker.environment.address={worker}")
                means, seconds = train(binaries, "team/team.yaml", seed, [], (*addresses, *more), "planner")
            results.append(means["team"])
            times.append(seconds)
    return rows_of("team", "right answers of planner and worker", "the worker is frozen", 1.2, trained, controlled,
                   max(times))


def duplicates(binaries, seeds):
    digits, sums, times = ([], []), ([], []), []
    with example_servers.team("delegation", 1) as (worker,):
        for seed in range(1, seeds + 1):
            for number, not_asked in enumerate(("duplicate", "drop")):
                settings = (f"environment.address={worker}", f"loss.not_asked={not_asked}")
                samples, _, seconds = run_example(binaries, "team/delegation.yaml", seed, [], settings)
                late = [sample for sample in samples if sample["step"] > 20 and sample["finish"] != "not_asked"]
                for results, of_sums in ((digits, False), (sums, True)):
                    rewards = [sample["reward"] for sample in late if ("+" in sample["prompt"]) == of_sums]
                    results[number].append(statistics.mean(rewards))
                times.append(seconds)
    return [*rows_of("duplicates", "right answers where rarely asked, steps 21 to 30", "without duplicates", 1.5, *digits,
                     max(times)),
            relative("duplicates: right sums, of those of the control", *sums)]


def notes(binaries, seeds):
    one = ("environment.max_conversations=1", 'environment.options={rewrite: "no"}')
    with example_servers.environments("notes") as address:
        results = compare(binaries, seeds, "notes.yaml", "right", [], (f"environment.address={address}",), one)
    return rows_of("notes", "right answers, after training", "in one conversation", 1.5, *results)


def budget_modes(binaries, seed, settings):
    """Trains with budgets. Returns the tokens and the right answers of each mode, after training, and the seconds."""
    _, rows, seconds = run_example(binaries, "budget.yaml", seed, [], settings)
    evaluations = [row for row in rows if "eval_name" in row]
    last = max(row["policy_version"] for row in evaluations)
    return {row["eval_name"]: (row["completion_length_mean"], row["reward_components"]["right"])
            for row in evaluations if row["policy_version"] == last}, seconds


def budget(binaries, seeds):
    trained, controlled, times = [], [], []
    for seed in range(1, seeds + 1):
        for settings, results in (((), trained), (("reward.components.brief.weight=0",), controlled)):
            modes, seconds = budget_modes(binaries, seed, settings)
            results.append(modes)
            times.append(seconds)

    def saved(runs, mode, part):
        """By how much a mode has less tokens (part 0) or right answers (part 1) than the mode `high` of the same run."""
        return [1 - run[mode][part] / max(run["high"][part], 1e-9) for run in runs]

    def listed(values):
        return ", ".join(f"{value:.3f}" for value in values)

    rows = []
    for mode, cut, loss in (("medium", 0.5, 0.1), ("low", 0.75, 0.15)):
        cuts, losses = saved(trained, mode, 0), saved(trained, mode, 1)
        rows.append(figures.bound(f"budget: tokens that mode {mode} saves", statistics.median(cuts), cut, "of 1"))
        rows[-1]["note"] = f"seeds: {listed(cuts)}; control: {listed(saved(controlled, mode, 0))}"
        rows.append(figures.bound(f"budget: right answers that mode {mode} loses", statistics.median(losses), loss, "of 1",
                                  lower_is_better=True))
        rows[-1]["note"] = f"right answers: {listed(run[mode][1] for run in trained)}; of mode high: " \
                           f"{listed(run['high'][1] for run in trained)}; control: " \
                           f"{listed(run[mode][1] for run in controlled)}"
    return [*rows, figures.bound("budget: longest run", max(times), 45, "s", lower_is_better=True)]


def replay(binaries, seeds):
    # No exact match has a reward of 2, so the control replays nothing.
    results = compare(binaries, seeds, "sparse.yaml", "exact", [], (), ("replay.min_reward=2",))
    return rows_of("replay", "right answers, after training", "without replay", 10, *results)


def adaptive(binaries, seeds):
    control = "adaptive_rollouts={min_group_size: 8, min_reward: 1}"
    tokens, sums, times = ([], []), ([], []), []
    for seed in range(1, seeds + 1):
        for number, settings in enumerate(((), (control,))):
            _, rows, seconds = run_example(binaries, "adaptive.yaml", seed, [], settings)
            tokens[number].append(sum(row.get("tokens_generated", 0) for row in rows))
            sums[number].append([row["eval_accuracy"] for row in rows if row.get("eval_name") == "sums"][-1])
            times.append(seconds)
    return [*rows_of("adaptive", "tokens generated", "groups of one size", 1.5, *tokens, max(times), "tokens", True),
            relative("adaptive: right sums, held out, of those of the control", *sums)]


def entropy(binaries, seeds):
    settings = ("trainer.steps=30", "warmup.sft.steps=40", "optimizer.learning_rate=1.5e-3",
                "loss.entropy_control={low: 0.1, high: 0.4}")
    off = "loss.entropy_control={low: 1000, high: 1000}"  # the entropy is never that high
    results = compare(binaries, seeds, "smoke.yaml", "exact", [], settings, (off,))
    return rows_of("entropy", "right answers, steps 21 to 30", "without entropy control", 1.5, *results)


def calls(binaries, seeds):
    settings = ("trainer.steps=30", "optimizer.learning_rate=1.0e-4")
    weights = 'loss.token_weights=[{begin: "[", end: "]", weight: 8}]'
    results = compare(binaries, seeds, "calculator.yaml", "answer", [], (*settings, weights), ("loss.token_weights=[]",))
    return rows_of("calls", "right answers, steps 21 to 30", "all tokens weigh the same", 1.05, *results)


def certain(binaries, seeds):
    results, tokens, times = {0.8: [], 1: []}, {0.8: [], 1: []}, []
    for seed in range(1, seeds + 1):
        for share in results:
            settings = ("trainer.steps=40", f"loss.turn_entropy_share={share}")
            _, rows, seconds = run_example(binaries, "calculator.yaml", seed, [], settings)
            steps = [row for row in rows if "step" in row]
            results[share].append(statistics.mean(row["reward_mean"] for row in steps[-10:]))
            tokens[share].append(sum(row["tokens_trained"] for row in steps))
            times.append(seconds)
    used = statistics.median(ours / theirs for ours, theirs in zip(tokens[0.8], tokens[1]))
    return [*rows_of("certain", "right answers, steps 31 to 40", "loss on all turns", 0.98, results[0.8], results[1], max(times)),
            figures.bound("certain: tokens with a loss, of the control's", used, 0.85, "of 1", lower_is_better=True)]


EXAMPLES = {"code": code, "openenv": openenv, "turns": turns, "mcp": mcp, "notes": notes, "tasks": tasks, "team": team,
            "duplicates": duplicates, "budget": budget, "replay": replay, "adaptive": adaptive, "entropy": entropy,
            "calls": calls, "certain": certain}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", choices=["sandbox", "generate", *EXAMPLES])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--bin", default=str(ROOT / "build" / "bin"))
    options = parser.parse_args()
    binaries = pathlib.Path(options.bin)
    rows = []
    if options.only in (None, "sandbox"):
        rows += throughput(binaries, options.rounds)
    if options.only in (None, "generate"):
        rows += generate(binaries, options.rounds)
    for name, example in EXAMPLES.items():
        if options.only in (None, name):
            rows += example(binaries, options.seeds)
    path = ROOT / "build" / "bench" / "agents.json"
    missed = figures.report(rows, path)
    path.with_suffix(".md").write_text(figures.markdown(rows))
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
