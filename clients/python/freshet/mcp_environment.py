"""Tools of MCP servers as environments."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

_HERMES_CALL = re.compile(r"<tool_call>(.*?)(?:</tool_call>|\Z)", re.DOTALL)
_PYTHON_TAG = "<|python_tag|>"


class _Malformed(Exception):
    """A tool call that cannot be read."""


def mcp_environment(
    server: str | Sequence[str],
    *,
    env: Mapping[str, str] | None = None,
    shared: bool = False,
    tool_calls: str = "hermes",
    tools: Sequence[str] | None = None,
    bind: Mapping[str, str] | None = None,
    max_calls: int = 32,
    seconds: float = 30.0,
    max_characters: int = 16384,
) -> Callable[[], Any]:
    """The tools of an MCP server, to be served by serve_env. Needs the package mcp.

        freshet.serve_env(freshet.mcp_environment(["python3", "server.py"]))

    For jobs with `environment.observations: messages`. The policy gets the tools with the row's prompt, and
    each of its tool calls is answered by a message. The episode ends with a turn without a tool call; its
    reward is 0, so the job names other components. A call that is malformed, that the server refuses or that
    takes too long is answered with the reason. Only a server that is lost is an error of the episode.

    server: URL (streamable HTTP), or a command (stdio). env: further environment variables of the command.
    shared: all episodes share one session, for servers that keep no state between calls. Otherwise every
    episode has its own, with a command thus a process.
    tool_calls: how the policy writes them: "hermes" (<tool_call>{"name", "arguments"}</tool_call>), or
    "llama3_json" ({"name", "parameters"}).
    tools: names of those that are offered; None: all.
    bind: parameter -> field of the row: arguments that the policy neither sees nor gives, such as the id of
    the task.
    max_calls: in an episode; a turn with more is truncated.
    seconds: limit of a call. max_characters: of an answer; the rest is cut.
    """
    if tool_calls not in _PARSERS:
        raise ValueError(f"tool_calls is {tool_calls!r}; use {' or '.join(_PARSERS)}")
    return functools.partial(
        McpEnvironment,
        sessions=_Sessions(server if isinstance(server, str) else list(server), dict(env or {}), seconds, shared),
        parse=_PARSERS[tool_calls],
        offered=None if tools is None else set(tools),
        bind=dict(bind or {}),
        max_calls=max_calls,
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
        max_calls: int,
        max_characters: int,
    ):
        self._sessions = sessions
        self._parse = parse
        self._offered = offered
        self._bind = bind
        self._bound: dict[str, dict[str, str]] = {}  # by tool
        self._max_calls = max_calls
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
        for function in await self._session.tools():
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
        return [await self._answer(call) for call in calls], 0.0, False, False, {}

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

    def _offers(self, name: str) -> bool:
        return self._offered is None or name in self._offered

    async def _answer(self, call: Any) -> dict[str, str]:
        if isinstance(call, _Malformed):
            return {"role": "tool", "content": f"error: {call}"}
        name, arguments = call
        if not self._offers(name):
            text = f"error: there is no tool {name[:100]!r}"
        else:
            text = await self._session.call(name, {**arguments, **self._bound.get(name, {})})
        if len(text) > self._max_characters:
            text = f"{text[: self._max_characters]}\n[{len(text) - self._max_characters} more characters are cut]"
        return {"role": "tool", "name": name[:100], "content": text}


class _Sessions:
    """Opens sessions with a server."""

    def __init__(self, server: str | list[str], env: dict[str, str], seconds: float, shared: bool):
        self._make = functools.partial(_Session, server, env, seconds)
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

    def __init__(self, server: str | list[str], env: dict[str, str], seconds: float):
        self._seconds = seconds
        self._client: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._end = asyncio.Event()
        self._task = asyncio.ensure_future(self._run(server, env))
        self._tools: list[dict[str, Any]] = []

    def is_lost(self) -> bool:
        return self._task.done()

    async def _run(self, server: str | list[str], env: dict[str, str]) -> None:
        from mcp import Client, StdioServerParameters

        if not isinstance(server, str):
            server = StdioServerParameters(command=server[0], args=server[1:], env=env)
        try:
            async with Client(server, read_timeout_seconds=self._seconds) as client:
                self._client.set_result(client)
                await self._end.wait()
        except BaseException as error:
            if not self._client.done():
                self._client.set_exception(RuntimeError(f"the MCP server cannot be reached: {_reason(error)}"))
            elif not self._end.is_set():
                raise

    async def _ask(self, ask: Callable[[Any], Any]) -> Any:
        """Fails if the session ends meanwhile."""
        client = await asyncio.shield(self._client)
        asked = asyncio.ensure_future(ask(client))
        try:
            await asyncio.wait({asked, self._task}, return_when=asyncio.FIRST_COMPLETED)
            if not asked.done():
                raise RuntimeError("the MCP server is lost")
            return asked.result()
        finally:
            asked.cancel()

    async def tools(self) -> list[dict[str, Any]]:
        """Name, description and parameters of each."""
        if self._tools:
            return self._tools
        found: list[dict[str, Any]] = []
        cursor = None
        while True:
            page = await self._ask(lambda client: client.list_tools(cursor=cursor))
            for tool in page.tools:
                description = tool.description or ""
                found.append({"name": tool.name, "description": description, "parameters": tool.input_schema})
            cursor = page.next_cursor
            if not cursor:
                self._tools = found
                return found
            if len(found) > 1024:
                raise ValueError("the MCP server has more than 1024 tools")

    async def call(self, name: str, arguments: dict[str, Any]) -> str:
        """The text of the answer, or why there is none."""
        from mcp.shared.exceptions import MCPError
        from mcp_types import CONNECTION_CLOSED

        try:
            result = await self._ask(lambda client: client.call_tool(name, arguments))
        except MCPError as error:
            if error.error.code == CONNECTION_CLOSED:
                raise
            return f"error: {error}"[:500]
        return "\n".join(part.text if part.type == "text" else f"[{part.type}]" for part in result.content)

    async def close(self) -> None:
        self._end.set()
        if not self._client.done():
            self._task.cancel()
        with contextlib.suppress(BaseException):
            await asyncio.shield(self._task)
        if self._client.done() and not self._client.cancelled():
            self._client.exception()  # it has been seen


def _reason(error: BaseException) -> str:
    """Of the first error in a group of them."""
    while getattr(error, "exceptions", None):
        error = error.exceptions[0]
    return f"{type(error).__name__}: {error}"[:300]


def _call(text: str, arguments_key: str) -> Any:
    """Name and arguments of a call, or _Malformed."""
    try:
        call = json.loads(text)
    except (RecursionError, ValueError):
        return _Malformed("the tool call is not JSON")
    if not isinstance(call, dict) or not isinstance(call.get("name"), str):
        return _Malformed("a tool call must be an object with a name")
    arguments = call.get(arguments_key, {})
    if not isinstance(arguments, dict):
        return _Malformed(f"{arguments_key} must be an object")
    return call["name"], arguments


def _hermes(action: str) -> list[Any]:
    return [_call(text, "arguments") for text in _HERMES_CALL.findall(action)]


def _llama3_json(action: str) -> list[Any]:
    text = action.strip()
    if text.startswith(_PYTHON_TAG):
        text = text[len(_PYTHON_TAG) :].lstrip()
    return [_call(text, "parameters")] if text.startswith("{") else []


_PARSERS = {"hermes": _hermes, "llama3_json": _llama3_json}
