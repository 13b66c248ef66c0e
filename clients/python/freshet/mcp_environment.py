"""Tools of MCP servers as environments."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import functools
import json
import logging
import math
import os
import re
import urllib.parse
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from freshet.environments import MAX_JSON_DEPTH, is_too_deep

_log = logging.getLogger("freshet.environment")
_HERMES_CALL = re.compile(r"<tool_call>(.*?)(?:</tool_call>|\Z)", re.DOTALL)
_URL = re.compile(r"(https?://)(?:[^\s/?#]*@)?([^\s/?#]*)\S*")
_PYTHON_TAG = "<|python_tag|>"
_START_SECONDS = 60.0
_CHECK_SECONDS = 1.0
_CLOSE_SECONDS = 5.0
_MAX_PAGES = 100  # of the list of tools


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
) -> Callable[[], Any]:
    """The tools of an MCP server, to be served by serve_env. Needs the package mcp.

        freshet.serve_env(freshet.mcp_environment(["python3", "server.py"]))

    For jobs with `environment.observations: messages`. The policy gets the tools with the row's prompt, and
    each of its tool calls is answered by a message. The episode ends with a turn without a tool call; its
    reward is 0, so the job names other components. A call that is malformed, that the server refuses or that
    takes too long is answered with the reason. A malformed call, or one of an unknown tool, makes the turn
    invalid (`environment.mask_invalid_turns`). Only a server that is lost is an error of the episode, or, unless it is
    shared, one that sends a message that cannot be read in place of an answer.

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
    """
    if tool_calls not in _PARSERS:
        raise ValueError(f"tool_calls is {tool_calls!r}; use {' or '.join(_PARSERS)}")
    # Errors leave out URLs and commands, which may hold keys.
    if isinstance(server, str):
        if not server.startswith(("http://", "https://")):
            raise ValueError("mcp is a text that is no http(s) URL; give one, or a command as a list")
        try:
            _name(server)
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
    if not (seconds > 0 and max_calls >= 0 and max_characters > 0):
        raise ValueError("seconds, max_calls and max_characters must be positive numbers")
    return functools.partial(
        McpEnvironment,
        sessions=_Sessions(server if isinstance(server, str) else list(server), {**passed, **(env or {})}, shared),
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
        sessions: _Sessions,
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
        self._session: _Session | None = None
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


class _NoAnswer(Exception):
    """No valid answer in time. Its text: what the server sent meanwhile that cannot be read, or ""."""


class _Sessions:
    """Opens sessions with a server."""

    def __init__(self, server: str | list[str], env: dict[str, str], shared: bool):
        self._make = functools.partial(_Session, server, env, shared)
        self._shared = shared
        self._common: _Session | None = None

    def open(self) -> _Session:
        if not self._shared:
            return self._make()
        if self._common is None or self._common.is_lost():
            self._common = self._make()
        return self._common

    async def close(self, session: _Session) -> None:
        if not self._shared or session.is_lost():
            await session.close()


class _Session:
    """A session with a server. The library wants it to be opened and closed by the same task."""

    def __init__(self, server: str | list[str], env: dict[str, str], shared: bool):
        self._name = _name(server)
        self._shared = shared
        self._unreadable = ""  # why the last such message cannot be read
        self._unreadable_count = 0
        self._client: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._end = asyncio.Event()
        self._lost = False
        self._task = asyncio.ensure_future(self._run(server, env))
        self._tools: list[dict[str, Any]] = []

    def is_lost(self) -> bool:
        return self._lost or self._task.done()

    async def _run(self, server: str | list[str], env: dict[str, str]) -> None:
        try:
            from mcp import Client, StdioServerParameters

            if not isinstance(server, str):
                server = StdioServerParameters(command=server[0], args=server[1:], env=env)
            async with Client(
                server, read_timeout_seconds=_START_SECONDS, message_handler=self._on_message
            ) as client:
                self._client.set_result(client)
                await self._end.wait()
        except BaseException as error:
            if not self._client.done():
                self._client.set_exception(RuntimeError(f"the MCP server cannot be reached: {_reason(error)}"))
            elif not self._end.is_set():
                raise

    async def _on_message(self, message: Any) -> None:
        """Of the library: a notification, or the error of a message that it cannot read and drops."""
        if isinstance(message, Exception):
            self._unreadable = " ".join(_reason(message).split())[:200]
            self._unreadable_count += 1

    async def _ask(self, ask: Callable[[Any], Any], seconds: float) -> Any:
        """Fails if the session ends meanwhile. _NoAnswer: none within `seconds` of the start."""
        try:
            client = await asyncio.wait_for(asyncio.shield(self._client), _START_SECONDS)
        except asyncio.CancelledError:
            if not self._client.done():
                _log.warning(
                    "the caller gave up before the MCP server %s had answered initialize%s",
                    self._name, self._and_unreadable())
            raise
        except asyncio.TimeoutError:
            self._lost = True
            raise RuntimeError(
                f"the MCP server {self._name} did not answer initialize within {_START_SECONDS:g} s"
                + self._and_unreadable()
            ) from None
        before = self._unreadable_count
        asked = asyncio.ensure_future(ask(client))
        try:
            await asyncio.wait({asked, self._task}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            if asked.done():
                return asked.result()
            if self._task.done():
                raise RuntimeError("the MCP server is lost")
            raise _NoAnswer(self._and_unreadable(before))
        finally:
            asked.cancel()

    def _and_unreadable(self, before: int = 0) -> str:
        """The last such message after the first `before`."""
        if self._unreadable_count <= before:
            return ""
        return f"; it sent a message that cannot be read: {self._unreadable}"

    async def tools(self, seconds: float) -> list[dict[str, Any]]:
        """Name, description and parameters of each. seconds: for a page, once the server has started."""
        if self._tools:
            return self._tools
        found: list[dict[str, Any]] = []
        cursor = None
        for _ in range(_MAX_PAGES):
            try:
                page = await self._ask(lambda client: client.list_tools(cursor=cursor), seconds)
            except _NoAnswer as unreadable:
                self._lost = True
                raise RuntimeError(
                    f"the MCP server {self._name} sent no valid answer to tools/list within {seconds:g} s{unreadable}"
                ) from None
            for tool in page.tools:
                description = tool.description or ""
                found.append({"name": tool.name, "description": description, "parameters": tool.input_schema})
            cursor = page.next_cursor
            if not cursor:
                self._tools = found
                return found
        raise ValueError(f"the MCP server lists its tools on more than {_MAX_PAGES} pages")

    async def call(self, name: str, arguments: dict[str, Any], seconds: float) -> str:
        """The text of the answer, or why there is none. Raises if the server is at fault."""
        from mcp.shared.exceptions import MCPError
        from mcp_types import INVALID_PARAMS, METHOD_NOT_FOUND

        try:
            result = await self._ask(lambda client: client.call_tool(name, arguments), seconds)
        except MCPError as error:
            # The library reports the status 404, that the server is gone, as METHOD_NOT_FOUND, too.
            listed = any(tool["name"] == name for tool in self._tools)
            if error.error.code == INVALID_PARAMS or (error.error.code == METHOD_NOT_FOUND and not listed):
                return f"error: {error}"[:500]
            self._lost = True  # also what the library says about the connection
            raise
        except _NoAnswer as unreadable:
            # In a shared session the message may be the answer to another call.
            if str(unreadable) and not self._shared:
                raise RuntimeError(
                    f"the MCP server {self._name} sent no valid answer to tools/call of {name[:100]}{unreadable}"
                ) from None
            await self._check()
            return "error: the tool took too long"
        return "\n".join(part.text if part.type == "text" else f"[{part.type}]" for part in result.content)

    async def _check(self) -> None:
        """Raises unless the server still answers, so that only the tool was slow."""
        try:
            await self._ask(lambda client: client.list_tools(), _CHECK_SECONDS)
        except Exception:
            self._lost = True
            raise RuntimeError("the MCP server does not answer") from None

    async def close(self) -> None:
        self._end.set()
        if not self._client.done():
            self._task.cancel()
        with contextlib.suppress(BaseException):
            await asyncio.wait_for(asyncio.shield(self._task), _CLOSE_SECONDS)
        self._task.cancel()
        if self._client.done() and not self._client.cancelled():
            self._client.exception()  # marks the exception as retrieved


def _name(server: str | list[str]) -> str:
    """Of a server, without what may hold keys: the user and path of a URL, the arguments of a command."""
    if not isinstance(server, str):
        return server[0][:200]
    parts = urllib.parse.urlsplit(server)
    host = parts.hostname
    if not host:
        raise ValueError("no host")
    port = "" if parts.port is None else f":{parts.port}"
    return f"{parts.scheme}://{f'[{host}]' if ':' in host else host}{port}"[:200]


def _reason(error: BaseException) -> str:
    """Text of the first error of an exception group, with no more of URLs than the host."""
    while getattr(error, "exceptions", None):
        error = error.exceptions[0]
    return _URL.sub(r"\1\2/...", f"{type(error).__name__}: {error}")[:300]


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
