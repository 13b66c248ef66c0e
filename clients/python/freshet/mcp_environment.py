"""Tools of MCP servers as environments."""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import json
import math
import os
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from freshet.environments import MAX_ANSWER_BYTES, MAX_JSON_DEPTH, is_too_deep
from freshet.mcp_session import Session, Sessions, server_name

_HERMES_CALL = re.compile(r"<tool_call>(.*?)(?:</tool_call>|\Z)", re.DOTALL)
_PYTHON_TAG = "<|python_tag|>"


@dataclasses.dataclass
class _Malformed:
    """A tool call that cannot be read."""

    why: str


def mcp_environment(
    server: str | Sequence[str],
    *,
    env: Mapping[str, str] | None = None,
    pass_env: Sequence[str] = (),
    shared: bool = False,
    tool_calls: str = "hermes",
    tools: Sequence[str] | None = None,
    bind: Mapping[str, str] | None = None,
    costs: Mapping[str, float] | None = None,
    max_calls: int = 32,
    seconds: float = 3.0,
    max_characters: int = 16384,
    max_answer_bytes: int = MAX_ANSWER_BYTES,
) -> Callable[[], Any]:
    """The tools of an MCP server, to be served by serve_env. Needs the package mcp.

        freshet.serve_env(freshet.mcp_environment(["python3", "server.py"]))

    For jobs with `environment.observations: messages`. The policy gets the tools with the row's prompt, and
    each of its tool calls is answered by a message. The episode ends with a turn without a tool call; its
    reward is 0, so the job names other components. A call that is malformed, that the server refuses or that
    takes too long is answered with the reason. A malformed call, or one of an unknown tool, makes the turn
    invalid (`environment.mask_invalid_turns`). Only a server that is lost, exceeds a bound or sends a wrong answer is an
    error of the episode, or, unless it is shared, one that sends a message that cannot be read in place of an answer.

    server: URL (streamable HTTP), or a command (stdio). env: further environment variables of the command.
    pass_env: names of this process's environment variables that the command gets too, such as the keys of tools.
    shared: all episodes share one session, for servers that keep no state between calls. Otherwise every
    episode has its own, with a command thus a process.
    tool_calls: how the policy writes them: "hermes" (<tool_call>{"name", "arguments"}</tool_call>), or
    "llama3_json" ({"name", "parameters"}).
    tools: names of those that are offered; None: all.
    bind: parameter -> field of the row: arguments that the policy neither sees nor gives, such as the id of
    the task.
    costs: name of a tool -> cost of a call (see `environment.max_cost`); of others: 0.
    max_calls: in an episode; a turn with more is truncated.
    seconds: limit of all calls of a turn, and of the list of tools; must be about a second below the job's
    environment.step_timeout_ms.
    max_characters: of an answer; the rest is cut.
    max_answer_bytes: limits what the server sends for one answer, including what it sends before it such as
    notifications, and the whole list of tools. More is an error of the episode.
    """
    if tool_calls not in _PARSERS:
        raise ValueError(f"tool_calls is {tool_calls!r}; use {' or '.join(_PARSERS)}")
    # Errors leave out URLs and commands, which may hold keys.
    if isinstance(server, str):
        if not server.startswith(("http://", "https://")):
            raise ValueError("mcp is a text that is no http(s) URL; give one, or a command as a list")
        try:
            server_name(server)
        except ValueError:
            raise ValueError("mcp is a URL without a valid host and port; give http(s)://HOST:PORT/PATH") from None
    elif not server:
        raise ValueError("mcp is empty; give a command as a list of texts")
    for index, word in enumerate(() if isinstance(server, str) else server):
        if not isinstance(word, str):
            raise ValueError(f"mcp[{index}] is of type {type(word).__name__}; give a command as a list of texts")
    if tools is not None and (isinstance(tools, str) or not all(isinstance(name, str) for name in tools)):
        raise ValueError(f"tools is {tools!r}; give a list of names")
    for what, texts in (("env", env), ("bind", bind)):
        if not all(isinstance(text, str) for pair in (texts or {}).items() for text in pair):
            raise ValueError(f"{what} must map texts to texts")
    if isinstance(pass_env, str) or not all(isinstance(name, str) for name in pass_env):
        raise ValueError(f"pass_env is {pass_env!r}; give a list of names")
    for name, cost in (costs or {}).items():
        if isinstance(cost, bool) or not isinstance(cost, (int, float)) or not 0 <= cost < math.inf:
            raise ValueError(f"costs.{name} is {cost!r}; give a number of at least 0")
    passed = {name: os.environ.get(name) for name in pass_env}
    unset = sorted(name for name, value in passed.items() if value is None)
    if unset:
        raise ValueError(f"pass_env: the environment variable {unset[0]} is not set")
    if not (seconds > 0 and max_calls >= 0 and max_characters > 0 and max_answer_bytes > 0):
        raise ValueError("seconds, max_calls, max_characters and max_answer_bytes must be positive numbers")
    return functools.partial(
        McpEnvironment,
        sessions=Sessions(
            server if isinstance(server, str) else list(server),
            {**passed, **(env or {})},
            shared,
            max_answer_bytes,
            seconds,
        ),
        parse=_PARSERS[tool_calls],
        offered=None if tools is None else set(tools),
        bind=dict(bind or {}),
        costs=dict(costs or {}),
        max_calls=max_calls,
        seconds=seconds,
        max_characters=max_characters,
    )


class McpEnvironment:
    """The tools of an MCP server"""

    def __init__(
        self,
        sessions: Sessions,
        parse: Callable[[str], list[Any]],
        offered: set[str] | None,
        bind: dict[str, str],
        costs: dict[str, float],
        max_calls: int,
        seconds: float,
        max_characters: int,
    ):
        self._sessions = sessions
        self._parse = parse
        self._offered = offered
        self._bind = bind
        self._costs = costs
        self._bound: dict[str, dict[str, str]] = {}  # by tool
        self._max_calls = max_calls
        self._seconds = seconds
        self._max_characters = max_characters
        self._session: Session | None = None
        self._calls = 0
        self.tools: list[dict[str, Any]] = []

    async def reset(self, seed: int, options: dict[str, str]) -> tuple[list[dict], dict[str, Any]]:
        await self.close()
        self._calls = 0
        self._session = self._sessions.open()
        self.tools = []
        self._bound = {}
        functions = await self._session.tools(self._seconds)
        self._check_names(functions)
        for function in functions:
            if self._offers(function["name"]):
                self.tools.append({"type": "function", "function": self._bind_to(options, function)})
        return [], {}

    async def step(self, action: str) -> tuple[list[dict] | str, float, bool, bool, dict[str, Any]]:
        calls = self._parse(action)
        if not calls:
            return "", 0.0, True, False, {}
        self._calls += len(calls)
        if self._calls > self._max_calls:
            return "", 0.0, False, True, {"truncated": f"more than {self._max_calls} tool calls"}
        end = asyncio.get_running_loop().time() + self._seconds
        answers = [await self._answer(call, end) for call in calls]
        known = {tool["function"]["name"] for tool in self.tools}
        invalid = any(isinstance(call, _Malformed) or call[0] not in known for call in calls)
        cost = sum(self._costs.get(call[0], 0.0) for call in calls if not isinstance(call, _Malformed))
        info: dict[str, Any] = {"invalid": True} if invalid else {}
        if cost > 0:
            info["cost"] = cost
        return answers, 0.0, False, False, info

    async def close(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            await self._sessions.close(session)

    def _bind_to(self, options: dict[str, str], function: dict[str, Any]) -> dict[str, Any]:
        """The function without its bound arguments, which are noted."""
        schema = function["parameters"]
        properties = schema.get("properties", {})
        bound = {}
        for parameter in self._bind.keys() & properties.keys():
            field = self._bind[parameter]
            if field not in options:
                raise KeyError(f"the row has no field {field}, which is bound to {parameter}")
            bound[parameter] = options[field]
        self._bound[function["name"]] = bound
        if not bound:
            return function
        parameters = {
            **schema,
            "properties": {k: v for k, v in properties.items() if k not in bound},
            "required": [k for k in schema.get("required", []) if k not in bound],
        }
        return {**function, "parameters": parameters}

    def _check_names(self, functions: list[dict[str, Any]]) -> None:
        names = {function["name"] for function in functions}
        parameters = {name for f in functions for name in f["parameters"].get("properties", {})}
        for option, given, known in (("tools", self._offered or set(), names), ("bind", set(self._bind), parameters)):
            if given - known:
                raise ValueError(f"{option}: the server has no {', '.join(sorted(given - known))}")

    def _offers(self, name: str) -> bool:
        return self._offered is None or name in self._offered

    async def _answer(self, call: Any, end: float) -> dict[str, str]:
        if isinstance(call, _Malformed):
            return {"role": "tool", "content": f"error: {call.why}"}
        name, arguments = call
        if not self._offers(name):
            text = f"error: there is no tool {name[:100]!r}"
        elif (left := end - asyncio.get_running_loop().time()) <= 0:
            text = "error: no time was left for this call"
        else:
            text = await self._session.call(name, {**arguments, **self._bound.get(name, {})}, left)
        if len(text) > self._max_characters:
            text = f"{text[: self._max_characters]}\n[{len(text) - self._max_characters} more characters are cut]"
        return {"role": "tool", "name": name[:100], "content": text}


def _call(text: str, arguments_key: str) -> tuple[str, dict[str, Any]] | _Malformed:
    try:
        call = json.loads(text)
        json.dumps(call, ensure_ascii=False).encode()  # no half of a surrogate pair
    except (RecursionError, UnicodeError, ValueError):
        return _Malformed("the tool call is not JSON")
    if not isinstance(call, dict) or not isinstance(call.get("name"), str):
        return _Malformed("a tool call must be an object with a name")
    arguments = call.get(arguments_key, {})
    if not isinstance(arguments, dict):
        return _Malformed(f"{arguments_key} must be an object")
    if is_too_deep(arguments):
        return _Malformed(f"{arguments_key} are nested deeper than {MAX_JSON_DEPTH}")
    return call["name"], arguments


def _hermes(action: str) -> list[Any]:
    return [_call(text, "arguments") for text in _HERMES_CALL.findall(action)]


def _llama3_json(action: str) -> list[Any]:
    text = action.strip()
    if text.startswith(_PYTHON_TAG):
        text = text[len(_PYTHON_TAG) :].lstrip()
    return [_call(text, "parameters")] if text.startswith("{") else []


_PARSERS = {"hermes": _hermes, "llama3_json": _llama3_json}
