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
MICROBATCH = 128
GOAL = 10      # times TRL's samples per second
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
    """Seconds until then."""
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
    seeds = f"medians of {len(peer)} seeds, {len(peer[0]['rewards'])} steps"
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
    mark = f"measured before with --full ({result['threads']} threads, {result['processor']})"
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


def run_trl(command, trl, job, log):
    """Trains with TRL in a process of its own; its time is that of the training loop."""
    with contextlib.ExitStack() as stack:
        peer = peer_processes.Peer("TRL", command, log, ANSWER_S, PYTHONPATH=str(trl))
        stack.callback(peer.stop)
        return peer.ask(workload="train", job=str(job), rows=MICROBATCH)


def measure(train, freshet, model, seeds, steps, out):
    """Trains the job with each seed by both, in alternating order. `train`: run() of learn.py. `freshet`: the program.
    `steps`: in place of the job's, or None. `out`: folder of the runs."""
    python, trl = trainer_peers.install()
    threads = len(os.sched_getaffinity(0))
    command = [python, HERE / "peers/trl_job_peer.py", model, "--threads", str(threads)]
    overrides = [f"model.path={model}"] + ([f"trainer.steps={steps}"] if steps else [])
    result = {"threads": threads, "processor": processor(), "freshet": [], "trl": []}
    for seed in seeds:
        job = out / f"trl-job-{seed}.yaml"
        words = [word for override in [f"seed={seed}", *overrides] for word in ("--set", override)]
        job.write_text(call(freshet, "validate", JOB, *words))
        kinds = {"freshet": lambda: run_freshet(train, seed, overrides, out / f"trl-freshet-{seed}"),
                 "trl": lambda: run_trl(command, trl, job, out / f"trl-{seed}.log")}
        for kind in kinds if seed % 2 else reversed(kinds):
            run = kinds[kind]()
            result[kind].append({"seed": seed, **run})
            print(f"stories seed {seed}, {kind}: {rate(run):.1f} samples/s, mean reward {last(run):.3f} at the end",
                  flush=True)
    return result
