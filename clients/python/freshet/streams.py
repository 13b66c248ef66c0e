"""Streams of a controller that are opened again when they break."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import TypeVar

import grpc

from freshet import errors

# Longer streams are reopened after their last event.
_STREAM_SECONDS = 600.0
# Status codes of a broken stream. Proxies and crashing servers cause INTERNAL and UNKNOWN, a hanging
# server causes DEADLINE_EXCEEDED.
_BROKEN = (
    grpc.StatusCode.DEADLINE_EXCEEDED,
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.INTERNAL,
    grpc.StatusCode.UNKNOWN,
    grpc.StatusCode.ABORTED,
)
Item = TypeVar("Item")


def reopened(
    open_stream: Callable[[float], Iterator[Item]],
    complete: Callable[[], bool],
    what: str,
    timeout: float | None,
    patience: float,
) -> Iterator[Item]:
    """Yields the items of a stream; reopens it with `open_stream(seconds)` when it breaks.

    complete: called when the server ends the stream; returns whether no more items will follow.
    Raises TimedOut after `timeout` seconds, and the stream's error if it is no break or if no item has
    come for `patience` seconds.
    """
    deadline = None if timeout is None else time.monotonic() + timeout
    give_up = time.monotonic() + patience
    pause = 0.1
    while True:
        left = _STREAM_SECONDS if deadline is None else deadline - time.monotonic()
        if left <= 0:
            raise errors.TimedOut(f"{what} has not ended within {timeout:g} s; it goes on")
        seconds = min(left, _STREAM_SECONDS)
        opened = time.monotonic()
        try:
            try:
                for item in open_stream(seconds):
                    pause, give_up = 0.1, time.monotonic() + patience
                    yield item
            except errors.TimedOut:
                if time.monotonic() - opened < 0.9 * seconds:
                    raise  # the stream's own time is not up
                give_up = time.monotonic() + patience
                continue
            if complete():
                return
        except errors.FreshetError as fault:
            if fault.code not in _BROKEN or time.monotonic() > give_up:
                raise
        time.sleep(pause)
        pause = min(2 * pause, 2.0)
