"""Places of an environment server's open episodes, and calls that hang."""

from __future__ import annotations

import contextlib
import logging
import sys
import threading
import time
from collections.abc import Callable, Iterator

_log = logging.getLogger("freshet.environment")
_MAX_ROW_CHARACTERS = 200
_HUNG_SHARE = 4  # one hung call per so many places makes the server stuck
_LEAST_HUNG = 2  # fewer never do
_CLOSE_FACTOR = 10  # a close may take so many times as long: it often removes files, or waits for processes


def frame_of(thread: int | None) -> str:
    """Where a thread is: "file:line in function"."""
    frame = sys._current_frames().get(thread)
    return "?" if frame is None else f"{frame.f_code.co_filename}:{frame.f_lineno} in {frame.f_code.co_name}"


class Place:
    """One open episode. Its methods are called by the thread that serves it, `leave` by any."""

    def __init__(self, clock: Callable[[], float]):
        self._clock = clock
        self._left: float | None = None  # when its caller has gone
        self._call: tuple[str, str, str, int] | None = None  # environment, method, row, thread
        self.is_hung = False

    @contextlib.contextmanager
    def call(self, environment: str, method: str, row: str) -> Iterator[None]:
        """While the environment's method runs."""
        self._call = (environment, method, row[:_MAX_ROW_CHARACTERS], threading.get_ident())
        try:
            yield
        finally:
            self._call = None

    def leave(self) -> None:
        """The caller waits no longer."""
        if self._left is None:
            self._left = self._clock()

    def call_left_for(self, seconds: float) -> tuple[str, str, str, int] | None:
        """The call that runs although its caller has been gone for more than so long, or, if it is close, 10 times."""
        left, call = self._left, self._call
        if left is None or call is None:
            return None
        limit = seconds * _CLOSE_FACTOR if call[1] == "close" else seconds
        return call if self._clock() - left > limit else None


class Places:
    """At most `number` episodes are open. Thread-safe.

    A call that runs `seconds` (close: 10 times as long) after its caller has given up is hung: it is logged, reported
    to `on_hung` (environment) and its place is free for another episode. `most_hung` such calls make the server stuck.
    """

    def __init__(
        self,
        number: int,
        seconds: float,
        on_hung: Callable[[str], None] = lambda environment: None,
        clock: Callable[[], float] = time.monotonic,
    ):
        self.number = number
        self.most_hung = max(_LEAST_HUNG, number // _HUNG_SHARE)
        self._seconds, self._on_hung, self._clock = seconds, on_hung, clock
        self._lock = threading.Lock()
        self._places: set[Place] = set()

    def take(self) -> Place | None:
        """None: all are taken."""
        with self._lock:
            if self._open() >= self.number:
                return None
            place = Place(self._clock)
            self._places.add(place)
            return place

    def give_back(self, place: Place) -> None:
        with self._lock:
            self._places.discard(place)

    def open(self) -> int:
        """Number of episodes, without those that hang."""
        with self._lock:
            return self._open()

    def stuck(self) -> str:
        """Why the process should be started again; "": it need not."""
        with self._lock:
            hung = len(self._places) - self._open()
        if hung < self.most_hung:
            return ""
        return f"hung calls: {hung} (limit {self.most_hung} for {self.number} places)"

    def _open(self) -> int:
        for place in self._places:
            call = None if place.is_hung else place.call_left_for(self._seconds)
            if call is not None:
                place.is_hung = True
                environment, method, row, thread = call
                self._on_hung(environment)
                _log.error(
                    "environment %s: %s hangs at %s, %s; its episode is given up and its place is free",
                    environment, method, frame_of(thread), row)
        return sum(not place.is_hung for place in self._places)
