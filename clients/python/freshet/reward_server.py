"""Serves a reward function that runs in processes of its own, until Ctrl-C.

    python3 -m freshet.reward_server math                  # Math-Verify
    python3 -m freshet.reward_server my_reward.py          # verl's compute_score(...)
"""

from __future__ import annotations

import argparse
import os
import sys

from freshet.reward_processes import RewardProcesses
from freshet.rewards import serve_reward


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python3 -m freshet.reward_server",
        description="Serves a reward function that runs in processes of its own.",
    )
    parser.add_argument("source", help='"math" for Math-Verify, or a Python file')
    parser.add_argument("--function", default="compute_score", help="of the file (%(default)s)")
    parser.add_argument("--listen", default="127.0.0.1:7080", help="HOST:PORT (%(default)s)")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1, help="(%(default)s)")
    parser.add_argument("--seconds", type=float, default=10.0, help="limit of a call (%(default)s)")
    parser.add_argument("--memory-mb", type=int, default=2048, help="limit of a process (%(default)s)")
    for name, text in (("cert", "certificate"), ("key", "its key"), ("ca", "CA of the callers")):
        parser.add_argument(f"--{name}", help=f"PEM file: {text}")
    parser.add_argument("--insecure", action="store_true", help="listen without TLS on any address")
    given = parser.parse_args()
    try:
        pool = RewardProcesses(
            given.source,
            given.function,
            processes=given.processes,
            seconds=given.seconds,
            memory_bytes=given.memory_mb << 20,
        )
        serve_reward(
            pool,
            given.listen,
            workers=2 * given.processes,
            cert=given.cert,
            key=given.key,
            ca=given.ca,
            insecure=given.insecure,
        )
    except (OSError, RuntimeError, ValueError) as error:
        sys.exit(f"{parser.prog}: {error}")


if __name__ == "__main__":
    main()
