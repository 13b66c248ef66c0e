"""Connects to one of the controllers of a cluster."""

from __future__ import annotations

import dataclasses
import fcntl
import json
import os
import pathlib
import re
import threading
import time
from collections.abc import Iterator
from typing import Any

import grpc

from freshet import errors
from freshet.job.v1 import job_service_pb2_grpc

_MAX_MESSAGE_BYTES = 16 << 20
_MAX_TOKEN = 16 << 10
_LOOPBACK = re.compile(r"(localhost|127\.[0-9.]+|\[::1\]):[0-9]+$")
# Time to connect to one of several controllers.
_CONNECT_SECONDS = 1.0
# How long calls are retried while no controller leads.
_FAILOVER_SECONDS = 6.0

# Error reasons of a standby controller. NOT_LEADER: the call was not executed. LEADER_AWAY: the
# leader died and may have executed it.
_NOT_LEADER = "NOT_LEADER"
_LEADER_AWAY = "LEADER_AWAY"


@dataclasses.dataclass
class _Link:
    address: str
    channel: grpc.Channel
    stub: job_service_pb2_grpc.JobServiceStub
    metadata: tuple[tuple[str, str], ...]


def read_token(token: str | None, token_file: str | os.PathLike | None) -> str | None:
    """Returns `token`, else the first line of the file, else the variable FRESHET_TOKEN.

    Raises ValueError, whose message never contains the token, and OSError if the file is unreadable.
    """
    source = "token"
    if token is not None and token_file is not None:
        raise ValueError("token and token_file are both given; use one of them")
    if token_file is not None:
        source = str(token_file)
        with open(token_file, encoding="ascii", errors="replace") as file:
            token = file.readline(_MAX_TOKEN + 1).rstrip("\r\n")
        if not token:
            raise ValueError(f"{source}: no token in the first line")
    elif token is None:
        source = "FRESHET_TOKEN"
        token = os.environ.get("FRESHET_TOKEN")
    if not token:
        return None
    if len(token) > _MAX_TOKEN or not all("!" <= letter <= "~" for letter in token):
        raise ValueError(
            f"{source}: a token is at most {_MAX_TOKEN} printable ASCII characters, without blanks"
        )
    return token


def local_cluster_token(address: str) -> str | None:
    """Returns the token of this user's local cluster with a controller at `address`, or None.

    Compares addresses as text: a different spelling of a loopback address may reach another user's
    process.
    """
    state = os.environ.get("XDG_STATE_HOME", "")
    root = pathlib.Path(state if state.startswith("/") else pathlib.Path.home() / ".local/state")
    for file in sorted(root.glob("freshet/clusters/*/cluster.json")):
        try:
            controllers = json.loads(file.read_text(encoding="utf-8"))["controller"].split(",")
            if address in controllers and is_locked(file.with_name("lock")):
                return read_token(None, file.with_name("cluster.token"))
        except (OSError, ValueError, LookupError, TypeError, AttributeError):
            continue  # no running cluster
    return None


def is_locked(file: pathlib.Path) -> bool:
    """Whether a process holds the lock of the file. The process that started a cluster holds its lock."""
    with open(file, "rb") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


class Connection:
    """Calls any controller that answers; standby controllers forward calls. Thread-safe."""

    def __init__(
        self,
        addresses: list[str],
        *,
        ca: str | None,
        cert: str | None,
        key: str | None,
        token: str | None,
        token_is_given: bool,
        timeout: float,
    ):
        self._timeout = timeout
        options = [
            ("grpc.max_receive_message_length", _MAX_MESSAGE_BYTES),
            ("grpc.keepalive_time_ms", 10_000),
            ("grpc.keepalive_timeout_ms", 5_000),
            ("grpc.initial_reconnect_backoff_ms", 100),
            ("grpc.max_reconnect_backoff_ms", 2_000),
        ]
        if ca:
            credentials = grpc.ssl_channel_credentials(
                root_certificates=pathlib.Path(ca).read_bytes(),
                private_key=pathlib.Path(key).read_bytes() if key else None,
                certificate_chain=pathlib.Path(cert).read_bytes() if cert else None,
            )
        elif cert or key:
            raise ValueError("cert and key need ca, which verifies the server")
        else:
            credentials = None
        self._links = []
        for address in addresses:
            sent = token
            if not credentials:
                given = token_is_given and _LOOPBACK.match(address)
                sent = token if given else local_cluster_token(address)
            if token and not sent:
                raise ValueError(
                    f"a token is not sent to {address} without TLS; give ca, or leave out "
                    "token, token_file and FRESHET_TOKEN"
                )
            channel = (
                grpc.secure_channel(address, credentials, options)
                if credentials
                else grpc.insecure_channel(address, options)
            )
            stub = job_service_pb2_grpc.JobServiceStub(channel)
            metadata = (("authorization", f"Bearer {sent}"),) if sent else ()
            self._links.append(_Link(address, channel, stub, metadata))
        self._lock = threading.Lock()
        self._used = 0

    def close(self) -> None:
        for link in self._links:
            link.channel.close()

    def call(self, method: str, request: Any, attempts: int = 1) -> Any:
        """Makes one unary call. With attempts > 1 it is retried while the server is unreachable."""
        repeatable = attempts > 1
        give_up = time.monotonic() + _FAILOVER_SECONDS
        pause = 0.1
        while True:
            link = self._choose()
            try:
                return getattr(link.stub, method)(
                    request, timeout=self._timeout, metadata=link.metadata
                )
            except grpc.RpcError as error:
                fault = errors.from_rpc(error, link.address)
                self._report(link, error)
                attempts -= 1
                changing = self._changes_hands(fault, repeatable) and time.monotonic() < give_up
                if error.code() != grpc.StatusCode.UNAVAILABLE or (attempts <= 0 and not changing):
                    raise fault from None
            time.sleep(pause)
            pause = min(2 * pause, 1.0)

    def stream(self, method: str, request: Any, timeout: float) -> Iterator[Any]:
        """Yields the messages of a server stream. Raises what `call` raises; never reopens the stream."""
        link = self._choose()
        stream = getattr(link.stub, method)(request, timeout=timeout, metadata=link.metadata)
        try:
            yield from stream
        except grpc.RpcError as error:
            self._report(link, error)
            raise errors.from_rpc(error, link.address) from None
        finally:
            stream.cancel()

    def _changes_hands(self, fault: errors.FreshetError, repeatable: bool) -> bool:
        if not isinstance(fault, errors.ConnectionLost):
            return False
        if fault.reason == _NOT_LEADER:
            return True
        return repeatable and (
            fault.reason == _LEADER_AWAY or (not fault.reason and len(self._links) > 1)
        )

    def _choose(self) -> _Link:
        """Returns the first of several controllers that accepts a connection, else the one used last."""
        with self._lock:
            first = self._used
        if len(self._links) == 1:
            return self._links[0]
        for at in range(first, first + len(self._links)):
            at %= len(self._links)
            if _connects(self._links[at].channel):
                with self._lock:
                    self._used = at
                return self._links[at]
        return self._links[first]

    def _report(self, link: _Link, error: grpc.RpcError) -> None:
        """Switches to the leader that the error names, or to the next controller if there was no answer."""
        if error.code() != grpc.StatusCode.UNAVAILABLE:
            return
        reason, leader = errors.reason_and_leader(error)
        addresses = [each.address for each in self._links]
        with self._lock:
            if leader in addresses:
                self._used = addresses.index(leader)
            elif not reason and self._links[self._used] is link:  # else another call has already switched
                self._used = (self._used + 1) % len(self._links)


def _connects(channel: grpc.Channel) -> bool:
    """Whether the channel connects within _CONNECT_SECONDS."""
    decided = threading.Event()
    states = []

    def look(state: grpc.ChannelConnectivity) -> None:
        states.append(state)
        if state in (
            grpc.ChannelConnectivity.READY,
            grpc.ChannelConnectivity.TRANSIENT_FAILURE,
            grpc.ChannelConnectivity.SHUTDOWN,
        ):
            decided.set()

    channel.subscribe(look, try_to_connect=True)
    try:
        decided.wait(_CONNECT_SECONDS)
    finally:
        channel.unsubscribe(look)
    return bool(states) and states[-1] == grpc.ChannelConnectivity.READY
