"""Trains examples/stories.yaml with Freshet and with TRL, and compares speed and reward. Part of learn.py."""
import contextlib
import json
import os
import pathlib
import statistics
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "tests/testing")]
import peer_processes  # noqa: E402
import trainer_peers  # noqa: E402
from launcher import call  # noqa: E402

JOB = HERE.parent / "examples/stories.yaml"
RESULT = HERE / "results/stories_trl.json"  # what `measure` returned for all steps and seeds
SEEDS = 5
WINDOW = 5     # steps of a mean reward
LEVEL = 0.75   # of the mean reward
MICROBATCH = 64  # samples
GOAL = 10      # times TRL's samples per second
TRIAL_STEPS = 3
ANSWER_S = 7200


def rate(run):
    """Trained samples per second."""
    return run["samples"] / run["seconds"]


def last(run):
    """Mean reward of the last steps."""
    return statistics.fmean(run["rewards"][-WINDOW:])


def reached(run):
    """Steps after which the mean reward of the last WINDOW steps is LEVEL; one more than there are if it never is."""
    rewards = run["rewards"]
    return next((n for n in range(WINDOW, len(rewards) + 1) if statistics.fmean(rewards[n - WINDOW:n]) >= LEVEL),
                len(rewards) + 1)


def until_level(run):
    """Seconds until the end of step `reached`."""
    return (run["walls"] + [run["seconds"]])[reached(run) - 1]


def spread(values):
    """Standard deviation between the seeds."""
    return statistics.stdev(values) if len(values) > 1 else 0.0


def rows(result):
    """The figures of a result of `measure`. The curve is no worse than TRL's if neither median is worse by more than the
    standard deviation between TRL's seeds."""
    ours, peer = result["freshet"], result["trl"]

    def medians(of):
        return statistics.median(map(of, ours)), statistics.median(map(of, peer))

    speed, trl_speed = medians(rate)
    reward, trl_reward = medians(last)
    steps, trl_steps = medians(reached)
    wall, trl_wall = medians(until_level)
    reward_spread, steps_spread = spread([last(run) for run in peer]), spread([reached(run) for run in peer])
    seeds = f"medians of {len(peer)} seeds, {len(peer[0]['rewards'])} steps; threads of TRL: {result['trl_threads']}"
    return [
        {"name": "stories against TRL: trained samples per second", "ours": speed, "peer": trl_speed, "peer_name": "TRL",
         "unit": "samples/s", "ratio": speed / trl_speed, "goal": GOAL, "note": seeds},
        {"name": f"stories against TRL: mean reward of the last {WINDOW} steps", "ours": reward,
         "peer": trl_reward - reward_spread, "peer_name": "TRL less its spread", "unit": "reward",
         "ratio": reward / max(trl_reward - reward_spread, 1e-9), "goal": 1,
         "note": f"TRL {trl_reward:.3f}, between its seeds {reward_spread:.3f}"},
        {"name": f"stories against TRL: steps to a mean reward of {LEVEL}", "ours": steps, "peer": trl_steps + steps_spread,
         "peer_name": "TRL and its spread", "unit": "steps", "ratio": (trl_steps + steps_spread) / steps, "goal": 1,
         "note": f"TRL {trl_steps:g}, between its seeds {steps_spread:.1f}"},
        {"name": f"stories against TRL: time to a mean reward of {LEVEL}", "ours": wall, "peer": trl_wall,
         "peer_name": "TRL", "unit": "s", "ratio": trl_wall / wall},
    ]


def committed():
    """The rows of the committed result, marked so; none if there is none."""
    if not RESULT.exists():
        return []
    result = json.loads(RESULT.read_text())
    mark = f"measured before with --full ({result['cores']} cores, {result['processor']})"
    return [row | {"note": "; ".join([mark, row["note"]] if "note" in row else [mark])} for row in rows(result)]


def processor():
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return "unknown processor"


def run_freshet(train, seed, overrides, folder):
    """Trains with `freshet local`; its time is that of the whole process."""
    wall, _, steps = train(JOB, seed, folder, overrides)
    with open(folder / "ledger.jsonl") as ledger:
        samples = sum(json.loads(line)["event"] == "trained" for line in ledger)
    return {"seconds": wall, "samples": samples, "rewards": [row["reward_mean"] for row in steps],
            "walls": [row["wall_seconds"] for row in steps]}


class Trl:
    """Trains with TRL, each time in a process of its own; the time is that of the training loop."""

    def __init__(self, model, out):
        self.python, self.folder = trainer_peers.install()
        self.model, self.out, self.threads = model, out, None

    def run(self, job, threads):
        command = [self.python, HERE / "peers/trl_job_peer.py", self.model, "--threads", str(threads)]
        with contextlib.ExitStack() as stack:
            peer = peer_processes.Peer("TRL", command, self.out / f"{job.stem}.log", ANSWER_S, PYTHONPATH=str(self.folder))
            stack.callback(peer.stop)
            return peer.ask(workload="train", job=str(job), rows=MICROBATCH)

    def choose_threads(self, job):
        """Takes one thread or one per core, whichever trains `job` faster after its first step."""
        def seconds(threads):
            walls = self.run(job, threads)["walls"]
            return walls[-1] - walls[0]

        self.threads = min({1, len(os.sched_getaffinity(0))}, key=seconds)


def measure(train, freshet, model, seeds, steps, out):
    """Trains the job with each seed by both, in alternating order. `train`: run() of learn.py. `freshet`: the program.
    `steps`: in place of the job's, or None. `out`: folder of the runs."""
    overrides = [f"model.path={model}"]

    def resolved(name, *more):
        words = [word for override in [*overrides, *more] for word in ("--set", override)]
        path = out / f"trl-{name}.yaml"
        path.write_text(call(freshet, "validate", JOB, *words))
        return path

    trl = Trl(model, out)
    trl.choose_threads(resolved("threads", f"trainer.steps={TRIAL_STEPS}"))
    if steps:
        overrides.append(f"trainer.steps={steps}")
    result = {"processor": processor(), "cores": len(os.sched_getaffinity(0)), "trl_threads": trl.threads,
              "freshet": [], "trl": []}
    for seed in seeds:
        job = resolved(seed, f"seed={seed}")
        kinds = {"freshet": lambda: run_freshet(train, seed, overrides, out / f"trl-freshet-{seed}"),
                 "trl": lambda: trl.run(job, trl.threads)}
        for kind in kinds if seed % 2 else reversed(kinds):
            run = kinds[kind]()
            result[kind].append({"seed": seed, **run})
            print(f"stories seed {seed}, {kind}: {rate(run):.1f} samples/s, mean reward {last(run):.3f} at the end",
                  flush=True)
    return result
