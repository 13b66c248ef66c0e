"""Serves the environments of a YAML file until Ctrl-C.

    python3 -m freshet.environment_server environments.yaml        # 127.0.0.1:7081; --help lists the flags

The file maps the name that jobs use (environment.name) to what it is, each with its options:

    lake: {gymnasium: FrozenLake-v1, arguments: {is_slippery: false}}
    echo: {openenv: "http://127.0.0.1:8000", action: message}
    files: {mcp: [python3, server.py], max_calls: 8}
    search: {mcp: "https://tools.example.com/mcp"}
    mine: {python: "my_environments.py:Nim"}
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import pathlib
import re
import sys
import threading
from collections.abc import Callable
from typing import Any

import yaml

from freshet.environments import HUNG_SECONDS, serve_env
from freshet.gymnasium_environment import gymnasium_environment
from freshet.mcp_environment import mcp_environment
from freshet.openenv_environment import openenv_environment
from freshet.serving import DRAIN_SECONDS

_CLOSE_SECONDS = 5.0
# In PyYAML's messages: a token such as '<scalar>' or a single character; or text of the file, except tokens.
_QUOTED = re.compile(r"((['\"])(?:<[a-z ]+>|[^\\]|\\x..|\\.)\2)|(['\"]).*\3")


def _gymnasium(id: str, arguments: dict[str, Any] | None = None) -> Callable[[], Any]:
    make = gymnasium_environment(id, **(arguments or {}))
    try:
        make().close()  # an id or arguments that it does not take are an error at once
    except Exception as error:  # whatever the environment raises
        raise ValueError(f"gymnasium: {id} cannot be made: {_text(error)}") from None
    return make


def _python(source: str) -> Callable[[], Any]:
    file, colon, name = source.rpartition(":")
    if not colon:
        raise ValueError(f"python: {source!r}: give FILE:CLASS")
    path = pathlib.Path(file)
    spec = importlib.util.spec_from_file_location(f"environment_{path.stem}", path)
    if spec is None or spec.loader is None or not path.is_file():
        raise ValueError(f"python: {file}: there is no such Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:  # whatever the user's file raises
        raise ValueError(f"python: {file} cannot be loaded: {_text(error)}") from None
    if not callable(getattr(module, name, None)):
        raise ValueError(f"python: {file} has no class or function {name}")
    return getattr(module, name)


def _text(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"


_TYPES = {str: "a text", bool: "true or false", int: "a whole number", float: "a number", list: "a list", dict: "a map"}

# What makes environments, the types of what the kind's own key may be, and those of its options.
_KINDS: dict[str, tuple[Callable[..., Callable[[], Any]], tuple[type, ...], dict[str, type]]] = {
    "gymnasium": (_gymnasium, (str,), {"arguments": dict}),
    "mcp": (
        mcp_environment,
        (str, list),
        {
            "env": dict,
            "pass_env": list,
            "shared": bool,
            "tool_calls": str,
            "tools": list,
            "bind": dict,
            "costs": dict,
            "max_calls": int,
            "seconds": float,
            "max_characters": int,
            "max_answer_bytes": int,
        },
    ),
    "openenv": (openenv_environment, (str,), {"action": str, "observation": str, "reset": list, "seconds": float}),
    "python": (_python, (str,), {}),
}


class _Loader(yaml.SafeLoader):
    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        try:
            return super().construct_object(node, deep=deep)
        except (RecursionError, yaml.YAMLError):
            raise
        except Exception:  # what Python raises for impossible dates and numbers
            problem = "a value does not fit its type; quote it"
            raise yaml.constructor.ConstructorError(None, None, problem, node.start_mark) from None


def load(path: str) -> dict[str, Callable[[], Any]]:
    """The environments of a file, by name. Raises ValueError that names the file and the entry."""
    try:
        text = pathlib.Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"{path}: {error}") from None
    try:
        entries = yaml.load(text, _Loader)
    except (RecursionError, yaml.YAMLError) as error:
        raise ValueError(f"{path}{_yaml_problem(error, text)}") from None
    if not isinstance(entries, dict) or not entries:
        raise ValueError(f"{path}: it must map names to environments")
    return {str(name): _make(f"{path}: {name}", entry) for name, entry in entries.items()}


def _yaml_problem(error: Exception, text: str) -> str:
    """Where and why the text is not YAML, without the text itself, which may hold keys."""
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        mark = error.problem_mark
        why = ": ".join(part for part in (error.context, error.problem) if part)
        why = _QUOTED.sub(lambda quoted: quoted[1] or "'...'", why)
        return f":{mark.line + 1}:{mark.column + 1}: {why}"
    if isinstance(error, yaml.reader.ReaderError):
        before = text[: error.position].split("\n")
        return f":{len(before)}:{len(before[-1]) + 1}: {error.reason}"
    return ": lists and maps are nested too deep"


def _make(where: str, entry: Any) -> Callable[[], Any]:
    kinds = [kind for kind in _KINDS if isinstance(entry, dict) and kind in entry]
    if len(kinds) != 1:
        raise ValueError(f"{where}: give one of {', '.join(_KINDS)}")
    make, types, known = _KINDS[kinds[0]]
    _check_type(f"{where}: {kinds[0]}", entry[kinds[0]], types)
    options = {key: value for key, value in entry.items() if key != kinds[0]}
    for key, value in options.items():
        if key not in known:
            raise ValueError(f"{where}: {kinds[0]} has no option {key!r}; use {', '.join(known) or 'none'}")
        if value is not None:
            _check_type(f"{where}: {key}", value, (known[key],))
    try:
        return make(entry[kinds[0]], **{key: value for key, value in options.items() if value is not None})
    except (TypeError, ValueError) as error:
        raise ValueError(f"{where}: {error}") from None


def _check_type(what: str, value: Any, types: tuple[type, ...]) -> None:
    whole = isinstance(value, int) and not isinstance(value, bool)
    fits = whole if int in types or (whole and float in types) else isinstance(value, types)
    if not fits:
        wanted = " or ".join(_TYPES[one] for one in types)
        raise ValueError(f"{what} is of type {type(value).__name__}; give {wanted}")  # the value may hold keys


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python3 -m freshet.environment_server", description="Serves the environments of a YAML file."
    )
    parser.add_argument("file", metavar="FILE", help="maps names to environments")
    parser.add_argument("--listen", default="127.0.0.1:7081", help="HOST:PORT (%(default)s)")
    parser.add_argument("--max-episodes", type=int, default=1024, help="open at a time (%(default)s)")
    parser.add_argument("--http-listen", default="", help="HOST:PORT of probes and metrics (none)")
    parser.add_argument(
        "--drain-seconds", type=float, default=DRAIN_SECONDS, help="for open episodes at the end (%(default)s)"
    )
    parser.add_argument(
        "--hung-seconds",
        type=float,
        default=HUNG_SECONDS,
        help="seconds that a call may run after its caller gave up, before it counts as hung (%(default)s)",
    )
    parser.add_argument(
        "--close-seconds", type=float, default=_CLOSE_SECONDS, help="for environments to close at the end (%(default)s)"
    )
    for name, text in (("cert", "certificate"), ("key", "its key"), ("ca", "CA of the callers")):
        parser.add_argument(f"--{name}", help=f"PEM file: {text}")
    parser.add_argument("--insecure", action="store_true", help="listen without TLS on any address")
    given = parser.parse_args()
    if given.max_episodes < 1:
        parser.error("--max-episodes must be above 0")
    if not given.drain_seconds >= 0:
        parser.error("--drain-seconds must be at least 0")
    if not given.hung_seconds >= 0:
        parser.error("--hung-seconds must be at least 0")
    if not 0 <= given.close_seconds <= threading.TIMEOUT_MAX:
        parser.error(f"--close-seconds must be between 0 and {threading.TIMEOUT_MAX:g}")
    try:
        serve_env(
            load(given.file),
            given.listen,
            max_episodes=given.max_episodes,
            http_address=given.http_listen,
            drain_seconds=given.drain_seconds,
            hung_seconds=given.hung_seconds,
            cert=given.cert,
            key=given.key,
            ca=given.ca,
            insecure=given.insecure,
        )
    except (OSError, ValueError) as error:
        sys.exit(f"{parser.prog}: {error}")
    _exit_within(given.close_seconds)


def _exit_within(seconds: float) -> None:
    """The interpreter waits for its threads, and an environment that hangs keeps one."""
    sys.stdout.flush()
    end = threading.Timer(seconds, os._exit, (0,))
    end.daemon = True
    end.start()


if __name__ == "__main__":
    main()
