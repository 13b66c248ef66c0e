"""Sessions with MCP servers."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import re
import urllib.parse
from collections.abc import Callable
from typing import Any

_log = logging.getLogger("freshet.environment")
_URL = re.compile(r"(https?://)(?:[^\s/?#]*@)?([^\s/?#]*)\S*")
_START_SECONDS = 60.0
_CHECK_SECONDS = 1.0
_CLOSE_SECONDS = 5.0
_MAX_PAGES = 100  # of the list of tools


class _NoAnswer(Exception):
    """No valid answer in time. Its text: what the server sent meanwhile that was dropped, or ""."""


class Sessions:
    """Opens sessions with a server."""

    def __init__(
        self, server: str | list[str], env: dict[str, str], shared: bool, max_answer_bytes: int, seconds: float
    ):
        self._make = functools.partial(Session, server, env, shared, max_answer_bytes, seconds)
        self._shared = shared
        self._common: Session | None = None

    def open(self) -> Session:
        if not self._shared:
            return self._make()
        if self._common is None or self._common.is_lost():
            self._common = self._make()
        return self._common

    async def close(self, session: Session) -> None:
        if not self._shared or session.is_lost():
            await session.close()


class Session:
    """A session with a server. The library wants it to be opened and closed by the same task.

    seconds: the longest that a caller waits for an answer.
    """

    def __init__(
        self, server: str | list[str], env: dict[str, str], shared: bool, max_answer_bytes: int, seconds: float
    ):
        self._name = server_name(server)
        self._shared = shared
        self._max_answer_bytes = max_answer_bytes
        self._read_seconds = max(_START_SECONDS, seconds + 1)  # _ask gives up first, and says more
        self._flaw = ""  # the last thing that the server sent and that was dropped
        self._flaws = 0
        self._client: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._fault: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._end = asyncio.Event()
        self._lost = False
        self._task = asyncio.ensure_future(self._run(server, env))
        self._tools: list[dict[str, Any]] = []

    def is_lost(self) -> bool:
        return self._lost or self._fault.done() or self._task.done()

    async def _run(self, server: str | list[str], env: dict[str, str]) -> None:
        try:
            from mcp import Client

            from freshet.mcp_transport import Traffic, connect

            transport = connect(server, env, Traffic(self._max_answer_bytes, self._on_fault, self._on_flaw))
            async with Client(transport, read_timeout_seconds=self._read_seconds) as client:
                self._client.set_result(client)
                await self._end.wait()
        except BaseException as error:
            if not self._client.done():
                self._client.set_exception(RuntimeError(f"the MCP server cannot be reached: {reason_of(error)}"))
            elif not self._end.is_set():
                raise

    def _on_fault(self, what: str) -> None:
        if not self._fault.done():
            self._fault.set_result(what)
            self._closing = asyncio.ensure_future(self.close())  # a shared session may have no episode that closes it

    def _on_flaw(self, what: str | Exception) -> None:
        if isinstance(what, Exception):
            what = f"a message that cannot be read: {reason_of(what)}"
        self._flaw = " ".join(what.split())[:250]
        self._flaws += 1

    def _check_fault(self) -> None:
        if self._fault.done():
            raise RuntimeError(f"the MCP server {self._name} {self._fault.result()}")

    async def _ask(self, ask: Callable[[Any], Any], seconds: float) -> Any:
        """Fails if the session ends meanwhile. _NoAnswer: none within `seconds` of the start."""
        first = asyncio.FIRST_COMPLETED
        try:
            await asyncio.wait({self._client, self._fault}, timeout=_START_SECONDS, return_when=first)
        except asyncio.CancelledError:
            if not self._client.done():
                _log.warning(
                    "the caller gave up before the MCP server %s had answered initialize%s",
                    self._name, self._and_flaw())
            raise
        self._check_fault()
        if not self._client.done():
            self._lost = True
            raise RuntimeError(
                f"the MCP server {self._name} did not answer initialize within {_START_SECONDS:g} s{self._and_flaw()}"
            )
        before = self._flaws
        asked = asyncio.ensure_future(ask(self._client.result()))
        try:
            await asyncio.wait({asked, self._task, self._fault}, timeout=seconds, return_when=first)
            self._check_fault()
            if asked.done():
                return asked.result()
            if self._task.done():
                raise RuntimeError("the MCP server is lost")
            raise _NoAnswer(self._and_flaw(before))
        finally:
            asked.cancel()

    def _and_flaw(self, before: int = 0) -> str:
        """The last one after the first `before`."""
        return f"; it sent {self._flaw}" if self._flaws > before else ""

    async def tools(self, seconds: float) -> list[dict[str, Any]]:
        """Name, description and parameters of each. seconds: for a page, once the server has started."""
        from mcp.shared.exceptions import MCPError

        if self._tools:
            return self._tools
        found: list[dict[str, Any]] = []
        size = 0
        cursor = None
        for _ in range(_MAX_PAGES):
            try:
                page = await self._ask(lambda client: client.list_tools(cursor=cursor), seconds)
            except _NoAnswer as flaw:
                self._lost = True
                raise RuntimeError(
                    f"the MCP server {self._name} sent no valid answer to tools/list within {seconds:g} s{flaw}"
                ) from None
            except (MCPError, ValueError) as error:
                self._lost = True
                raise self._failed("tools/list", error) from None
            size += len(page.model_dump_json())
            if size > self._max_answer_bytes:
                self._lost = True
                raise RuntimeError(
                    f"the MCP server {self._name} lists tools of more than {self._max_answer_bytes} bytes; "
                    "max_answer_bytes limits them"
                )
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
            raise self._failed(f"tools/call of {name[:100]}", error) from None
        except _NoAnswer as flaw:
            # In a shared session the message may be the answer to another call.
            if str(flaw) and not self._shared:
                raise RuntimeError(
                    f"the MCP server {self._name} sent no valid answer to tools/call of {name[:100]}{flaw}"
                ) from None
            await self._check()
            return "error: the tool took too long"
        except ValueError as error:  # the answer is no result of a tool
            self._lost = True
            raise self._failed(f"tools/call of {name[:100]}", error) from None
        return "\n".join(part.text if part.type == "text" else f"[{part.type}]" for part in result.content)

    def _failed(self, what: str, error: Exception) -> RuntimeError:
        return RuntimeError(f"the MCP server {self._name} failed {what}: {' '.join(reason_of(error).split())}")

    async def _check(self) -> None:
        """Raises unless the server still answers, so that only the tool was slow."""
        try:
            await self._ask(lambda client: client.list_tools(cache_mode="refresh"), _CHECK_SECONDS)
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


def server_name(server: str | list[str]) -> str:
    """Of a server, without what may hold keys: the user and path of a URL, the arguments of a command."""
    if not isinstance(server, str):
        return server[0][:200]
    parts = urllib.parse.urlsplit(server)
    host = parts.hostname
    if not host:
        raise ValueError("no host")
    port = "" if parts.port is None else f":{parts.port}"
    return f"{parts.scheme}://{f'[{host}]' if ':' in host else host}{port}"[:200]


def reason_of(error: BaseException) -> str:
    """Text of the first error of an exception group, with no more of URLs than the host."""
    while getattr(error, "exceptions", None):
        error = error.exceptions[0]
    return _URL.sub(r"\1\2/...", f"{type(error).__name__}: {error}")[:300]
