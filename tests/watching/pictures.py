#!/usr/bin/env python3
"""Draws the pictures of docs/dashboards.md from a job on a temporary cluster with Prometheus. Needs matplotlib.

    pictures.py BINARIES OUT [JOB.yaml] [--set K=V]... [--rollouts N]

JOB.yaml defaults to examples/guess_number.yaml. Without an environment in the job, the episode panels stay empty. The
pictures cover the whole run. Exits 1 if the job fails or a panel has no data.
"""
import argparse
import pathlib
import sys
import tempfile
import time

from cluster import ROOT, Cluster, await_true, missing

import render  # from helm/dashboards, which cluster.py adds to sys.path

ENDED = ("SUCCEEDED", "FAILED", "CANCELLED")
SECONDS = 3600


def run(cluster, path, settings):
    """Runs the job to its end. Returns (begin, end) in Unix time."""
    begin = time.time()
    cluster.freshet("submit", str(path), "--id", "watched", *(word for setting in settings for word in ("--set", setting)))
    state = ""

    def ended():
        nonlocal state
        state = cluster.job("watched")["state"].removeprefix("JOB_STATE_")
        return state in ENDED
    await_true("the end of the job", ended, seconds=SECONDS)
    if state != "SUCCEEDED":
        raise RuntimeError(f"the job is {state}: {cluster.freshet('describe', 'watched')}")
    end = time.time()
    # Wait until the last second is scraped.
    await_true("a scrape", lambda: cluster.prometheus.now(f"timestamp(up) > {end}"))
    return begin, end


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binaries", type=pathlib.Path)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("job", type=pathlib.Path, nargs="?", default=ROOT / "examples" / "guess_number.yaml")
    parser.add_argument("--set", action="append", default=[], dest="settings", metavar="K=V")
    parser.add_argument("--rollouts", type=int, default=2)
    args = parser.parse_args()
    if missing():
        sys.exit(f"pictures.py: not installed: {', '.join(missing())}")
    with tempfile.TemporaryDirectory() as folder, Cluster(args.binaries, pathlib.Path(folder), args.rollouts) as cluster:
        begin, end = run(cluster, args.job, args.settings)
        values = {"namespace": "watching", "job": "watched", "__rate_interval": "10s"}
        names = ("overview", "pipeline", "policy", "signals", "infrastructure")
        lacking = render.draw(names, render.View(cluster.prometheus, values, begin, end), args.out)
    for panel in lacking:
        print(f"no data: {panel}", file=sys.stderr)
    return 1 if lacking else 0


if __name__ == "__main__":
    sys.exit(main())
