"""Serves reward functions that run in processes of their own, until Ctrl-C.

    python3 -m freshet.reward_server math                           # Math-Verify
    python3 -m freshet.reward_server math my_reward.py              # and verl's compute_score(...)
    python3 -m freshet.reward_server strict=my_reward.py:strict     # another function of the file

Jobs use them by their names, which are `math`, the file's name without .py, or NAME of NAME=FILE, if the
reward workers have the flag --python-rewards with this server's address.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import pathlib
import re
import sys

from freshet.reward_processes import RewardProcesses
from freshet.rewards import serve_reward

# Calls of one function that may wait for its processes.
_WORKERS = 64
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")


def _parse(source: str) -> tuple[str, str, str]:
    """Name, file and function of SOURCE."""
    if source == "math":
        return "math", "math", ""
    name, equals, rest = source.partition("=")
    if not equals:
        name, rest = "", source
    file, colon, function = rest.rpartition(":")
    if not colon:
        file, function = rest, "compute_score"
    name = name or pathlib.Path(file).stem
    if name == "math" or not _NAME.fullmatch(name):
        raise ValueError(
            f"{source}: the name {name!r} must be other than math, and at most 63 letters, digits, '.', '_'"
            " and '-', starting with a letter or a digit; choose one as NAME=FILE"
        )
    return name, file, function


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python3 -m freshet.reward_server",
        description="Serves reward functions that run in processes of their own.",
    )
    parser.add_argument(
        "sources",
        metavar="SOURCE",
        nargs="+",
        help='"math" for Math-Verify, or [NAME=]FILE[:FUNCTION], a Python file with compute_score '
        "or that function",
    )
    parser.add_argument("--listen", default="127.0.0.1:7080", help="HOST:PORT (%(default)s)")
    parser.add_argument(
        "--processes", type=int, default=os.cpu_count() or 1, help="of each function (%(default)s)"
    )
    parser.add_argument("--seconds", type=float, default=10.0, help="limit of a call (%(default)s)")
    parser.add_argument("--memory-mb", type=int, default=2048, help="limit of a process (%(default)s)")
    parser.add_argument("--http-listen", default="", help="HOST:PORT of probes and metrics (none)")
    for name, text in (("cert", "certificate"), ("key", "its key"), ("ca", "CA of the callers")):
        parser.add_argument(f"--{name}", help=f"PEM file: {text}")
    parser.add_argument("--insecure", action="store_true", help="listen without TLS on any address")
    given = parser.parse_args()
    for name in ("processes", "seconds", "memory_mb"):
        if not getattr(given, name) > 0:
            parser.error(f"--{name.replace('_', '-')} must be above 0")
    try:
        with contextlib.ExitStack() as pools:
            functions = {}
            for name, file, function in map(_parse, given.sources):
                if name in functions:
                    raise ValueError(f"two functions have the name {name!r}; choose others as NAME=FILE")
                functions[name] = RewardProcesses(
                    file,
                    function,
                    processes=given.processes,
                    seconds=given.seconds,
                    memory_bytes=given.memory_mb << 20,
                )
                pools.callback(functions[name].close)
            serve_reward(
                functions,
                given.listen,
                workers=_WORKERS * len(functions),
                http_address=given.http_listen,
                cert=given.cert,
                key=given.key,
                ca=given.ca,
                insecure=given.insecure,
            )
    except (OSError, RuntimeError, ValueError) as error:
        sys.exit(f"{parser.prog}: {error}")


if __name__ == "__main__":
    main()
