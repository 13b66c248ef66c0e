#!/usr/bin/env python3
"""Draws the pictures of docs/dashboards.md: runs a job on a cluster of its own, watched by Prometheus. Needs matplotlib.

    pictures.py BINARIES OUT [JOB.yaml] [--set K=V]... [--rollouts N]

JOB.yaml is examples/guess_number.yaml unless given; it should have an environment, or those panels stay flat. The
pictures show the run from its first to its last second. Exits 1 when the job fails or a panel has no data.
"""
import argparse
import pathlib
import sys
import tempfile
import time

from cluster import ROOT, Cluster, await_true, missing

import render  # of helm/dashboards, which cluster.py puts on the path

ENDED = ("SUCCEEDED", "FAILED", "CANCELLED")
SECONDS = 3600


def run(cluster, path, settings):
    """The job from its submission to its end; (begin, end) in Unix time."""
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
    # Its last second is scraped, too.
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
        names = ("overview", "pipeline", "policy", "infrastructure")
        lacking = render.draw(names, render.View(cluster.prometheus, values, begin, end), args.out)
    for panel in lacking:
        print(f"no data: {panel}", file=sys.stderr)
    return 1 if lacking else 0


if __name__ == "__main__":
    sys.exit(main())
