"""Connections to MCP servers, with bounds on what the servers send. Needs the package mcp."""

from __future__ import annotations

import asyncio
import codecs
import contextlib
import functools
import json
import os
import signal
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import anyio
import httpx2
from mcp.client.stdio import get_default_environment
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.dispatcher import coerce_request_id
from mcp.shared.message import SessionMessage
from mcp_types import (
    PARSE_ERROR,
    ErrorData,
    JSONRPCError,
    JSONRPCNotification,
    JSONRPCRequest,
    JSONRPCResponse,
    jsonrpc_message_adapter,
)

_CHUNK_BYTES = 64 << 10
_MAX_SERVER_REQUESTS = 64  # such as pings, that are being answered
_MAX_EVENT_STREAMS = 64
_EXIT_SECONDS = 2.0  # _end waits this long, twice: after it closes stdin and after SIGTERM
_TIMEOUTS = httpx2.Timeout(30.0, read=300.0)  # the library's own


class Traffic:
    """What is sent and received in one session.

    max_bytes: limits a line on stdio and the body of a response to a POST. max_bytes also limits what a server sends
    between one of the session's requests or answers and the next: on stdio, and in responses to a GET or DELETE.
    on_fault: called with what the server did, when it exceeds a bound. The session must end.
    on_flaw: called with what the server sent that is dropped.
    """

    def __init__(
        self,
        max_bytes: int,
        on_fault: Callable[[str], None],
        on_flaw: Callable[[Any], None],
        clock: Callable[[], float] = time.monotonic,
    ):
        self.max_bytes = max_bytes
        self.faulty = False
        self._on_fault = on_fault
        self._on_flaw = on_flaw
        self._waiting: set[Any] = set()  # ids of requests without an answer
        self._last_id = 0
        self._server_requests: list[Any] = []  # ids of those that are being answered; a server may repeat them
        self._clock = clock
        self._start_count()

    def _start_count(self) -> None:
        """At each request and answer."""
        self._bytes = 0
        self._event_streams = 0
        self._counted_since = self._clock()

    def fault(self, what: str) -> None:
        self.faulty = True
        self._on_fault(what)

    def count_bytes(self, message_bytes: int, chunk_bytes: int = 0) -> bool:
        """Reports a fault above max_bytes. Returns False after any fault.

        message_bytes: size of the message so far.
        chunk_bytes: size of what was just received on stdio, or over HTTP in a response to a GET or DELETE.
        """
        if self.faulty:
            return False
        self._bytes += chunk_bytes
        if max(self._bytes, message_bytes) <= self.max_bytes:
            return True
        self.fault(f"sent more than {self.max_bytes} bytes for one answer; max_answer_bytes limits them")
        return False

    def count_event_stream(self) -> None:
        """To be called when a GET is answered: the library sends another one whenever the server ends the stream."""
        self._event_streams += 1
        seconds = self._clock() - self._counted_since
        if self._event_streams > _MAX_EVENT_STREAMS + seconds * (1 + len(self._waiting)):
            self.fault(
                f"ended more than {_MAX_EVENT_STREAMS} event streams, plus one per second and one per second for each "
                "call that waits"
            )

    def sent(self, item: SessionMessage) -> None:
        """To be called before a request is sent, and after any other message."""
        message = item.message
        if isinstance(message, JSONRPCRequest):
            self._start_count()
            self._waiting.add(message.id)
            self._last_id = max(self._last_id, message.id)  # the library counts
        elif isinstance(message, (JSONRPCError, JSONRPCResponse)):
            self._end_server_request(message.id)
        elif isinstance(message, JSONRPCNotification) and message.method == "notifications/cancelled":
            self._waiting.discard((message.params or {}).get("requestId"))

    def _end_server_request(self, id: Any) -> None:
        if id in self._server_requests:
            self._server_requests.remove(id)

    def received(self, item: SessionMessage | Exception) -> SessionMessage | Exception:
        """The message as the library gets it."""
        if isinstance(item, Exception):
            self._on_flaw(item)
            return item
        message = item.message
        if isinstance(message, JSONRPCRequest):
            self._server_requests.append(message.id)
            if len(self._server_requests) > _MAX_SERVER_REQUESTS:
                self.fault(f"sent more than {_MAX_SERVER_REQUESTS} requests without waiting for their answers")
                return RuntimeError("too many requests")
        if isinstance(message, JSONRPCNotification) and message.method == "notifications/cancelled":
            self._end_server_request((message.params or {}).get("requestId"))
        if not isinstance(message, (JSONRPCResponse, JSONRPCError)):
            return item
        id = None if message.id is None else coerce_request_id(message.id)
        if id not in self._waiting:
            if id is None:
                self._on_flaw(f"an error without an id: {message.error.message[:100]}")
            elif not (isinstance(id, int) and 0 < id <= self._last_id):  # else it is late
                self._on_flaw(f"an answer with the id {str(id)[:50]}, which no request has")
            return item
        self._waiting.discard(id)
        self._start_count()
        if isinstance(message, JSONRPCError):
            return item
        try:
            json.dumps(message.result, allow_nan=False)
        except ValueError:
            error = ErrorData(code=PARSE_ERROR, message="the answer has a number that is not finite")
            return SessionMessage(JSONRPCError(jsonrpc="2.0", id=message.id, error=error))
        # The library would check structured answers, which nobody reads, by the server's regular expressions.
        tools = message.result.get("tools")
        for tool in tools if isinstance(tools, list) else ():
            if isinstance(tool, dict):
                tool.pop("outputSchema", None)
        return item


@contextlib.asynccontextmanager
async def connect(server: str | list[str], env: dict[str, str], traffic: Traffic) -> AsyncIterator[Any]:
    """A transport for the library's client. server: URL or command."""
    async with contextlib.AsyncExitStack() as stack:
        if isinstance(server, str):
            client = httpx2.AsyncClient(
                timeout=_TIMEOUTS,
                headers={"accept-encoding": "identity"},
                event_hooks={"response": [functools.partial(_bound, traffic)]},
            )
            await stack.enter_async_context(client)
            streams = streamable_http_client(server, http_client=client, max_sse_event_size=traffic.max_bytes)
        else:
            streams = _command_streams(server, env, traffic)
        inbox, outbox = await stack.enter_async_context(streams)
        yield _Inbox(inbox, traffic), _Outbox(outbox, traffic)


class _Stream:
    def __init__(self, stream: Any, traffic: Traffic):
        self._stream = stream
        self._traffic = traffic

    async def aclose(self) -> None:
        await self._stream.aclose()

    async def __aenter__(self) -> Any:
        return self

    async def __aexit__(self, *_: Any) -> None:
        await self.aclose()


class _Inbox(_Stream):
    @property
    def last_context(self) -> Any:
        return getattr(self._stream, "last_context", None)

    async def receive(self) -> Any:
        return self._traffic.received(await self._stream.receive())

    def __aiter__(self) -> Any:
        return self

    async def __anext__(self) -> Any:
        return self._traffic.received(await self._stream.__anext__())


class _Outbox(_Stream):
    async def send(self, item: SessionMessage) -> None:
        if isinstance(item.message, JSONRPCRequest):
            self._traffic.sent(item)
            await self._stream.send(item)
        else:
            await self._stream.send(item)
            self._traffic.sent(item)


async def _bound(traffic: Traffic, response: httpx2.Response) -> None:
    """Bounds the body of a response that has not been read."""
    if response.request.method == "GET" and not response.has_redirect_location:
        traffic.count_event_stream()
    if traffic.faulty:
        raise httpx2.StreamError("faulty server")
    response.encoding = "utf-8"  # whatever the server says
    response.stream = _Body(response, traffic)


class _Body(httpx2.AsyncByteStream):
    """The body of a response."""

    def __init__(self, response: httpx2.Response, traffic: Traffic):
        self._stream = response.stream
        self._traffic = traffic
        self._is_answer = response.request.method == "POST"
        self._coding = response.headers.pop("content-encoding", "")[:50]  # so that httpx2 does not decompress

    async def __aiter__(self) -> AsyncIterator[bytes]:
        decoder = codecs.getincrementaldecoder("utf-8")()
        size = 0
        async for chunk in self._stream:
            size += len(chunk) if self._is_answer else 0
            if not self._traffic.count_bytes(size, 0 if self._is_answer else len(chunk)):
                raise httpx2.StreamError("too many bytes")
            try:
                decoder.decode(chunk)
            except UnicodeDecodeError:
                coding = f", with Content-Encoding: {self._coding}" if self._coding else ""
                self._traffic.fault(f"sent a body that is not UTF-8{coding}")
                raise httpx2.StreamError("not UTF-8") from None
            yield chunk

    async def aclose(self) -> None:
        await self._stream.aclose()


@contextlib.asynccontextmanager
async def _command_streams(command: list[str], env: dict[str, str], traffic: Traffic) -> AsyncIterator[Any]:
    """The messages of a process, which ends with them."""
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env={**get_default_environment(), **env},
        start_new_session=True,
    )
    try:
        to_inbox, inbox = anyio.create_memory_object_stream[Any](0)
        outbox, from_outbox = anyio.create_memory_object_stream[Any](0)
        async with to_inbox, inbox, outbox, from_outbox, anyio.create_task_group() as tasks:
            tasks.start_soon(_read, process.stdout, to_inbox, traffic)
            tasks.start_soon(_write, process.stdin, from_outbox, to_inbox)
            try:
                yield inbox, outbox
            finally:
                tasks.cancel_scope.cancel()
    finally:
        await _end(process, at_once=traffic.faulty)


async def _read(stdout: asyncio.StreamReader, inbox: Any, traffic: Traffic) -> None:
    line = bytearray()
    with contextlib.suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
        async with inbox:
            while chunk := await stdout.read(_CHUNK_BYTES):
                end = chunk.find(b"\n")
                if not traffic.count_bytes(len(line) + (len(chunk) if end < 0 else end), len(chunk)):
                    return
                line += chunk
                if end >= 0:
                    *lines, line = line.split(b"\n")
                    for one in lines:
                        await inbox.send(_message(one))


def _message(line: bytearray) -> SessionMessage | Exception:
    try:
        return SessionMessage(jsonrpc_message_adapter.validate_json(line.decode(), by_name=False))
    except ValueError as error:
        return error


async def _write(stdin: asyncio.StreamWriter, outbox: Any, inbox: Any) -> None:
    try:
        async for item in outbox:
            stdin.write(item.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n")
            await stdin.drain()
    except OSError:
        await inbox.aclose()  # the session learns that the connection is lost


async def _end(process: asyncio.subprocess.Process, at_once: bool) -> None:
    """Ends a process and its children: closes stdin, then sends SIGTERM, then SIGKILL."""
    drained = asyncio.ensure_future(_drain(process.stdout))
    try:
        with anyio.CancelScope(shield=True):
            process.stdin.close()
            for number in (signal.SIGKILL,) if at_once else (None, signal.SIGTERM):
                if number is not None:
                    _signal(process, number)
                with contextlib.suppress(asyncio.TimeoutError):
                    await asyncio.wait_for(process.wait(), _EXIT_SECONDS)
                    break
    finally:
        drained.cancel()
        _signal(process, signal.SIGKILL)


async def _drain(stdout: asyncio.StreamReader) -> None:
    """Discards output, so that the process does not wait for a full pipe."""
    while await stdout.read(_CHUNK_BYTES):
        pass


def _signal(process: asyncio.subprocess.Process, number: int) -> None:
    """To the process and its children."""
    with contextlib.suppress(PermissionError, ProcessLookupError):
        os.killpg(process.pid, number)
