"""Metrics in Prometheus' text format, and the HTTP server that shows them."""

from __future__ import annotations

import bisect
import threading
from collections.abc import Callable, Sequence
from typing import Any

from freshet.plain_http import Handler, Listener


def _labels(names: Sequence[str], values: Sequence[str]) -> str:
    pairs = []
    for name, value in zip(names, values):
        escaped = value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
        pairs.append(f'{name}="{escaped}"')
    return "{" + ",".join(pairs) + "}" if pairs else ""


class Counter:
    """A counter for each combination of label values. Thread-safe."""

    kind = "counter"

    def __init__(self, name: str, help: str, *labels: str):
        self.name, self.help = name, help
        self._labels = labels
        self._lock = threading.Lock()
        self._counts: dict[tuple[str, ...], float] = {}

    def add(self, *values: str, amount: float = 1.0) -> None:
        with self._lock:
            self._counts[values] = self._counts.get(values, 0.0) + amount

    def lines(self) -> list[str]:
        with self._lock:
            counts = sorted(self._counts.items())
        return [f"{self.name}{_labels(self._labels, values)} {count!r}" for values, count in counts]


class Gauge:
    """What `read` returns when it is shown: a number for each combination of label values."""

    kind = "gauge"

    def __init__(self, name: str, help: str, read: Callable[[], dict[tuple[str, ...], float]], *labels: str):
        self.name, self.help = name, help
        self._read, self._labels = read, labels

    def lines(self) -> list[str]:
        return [f"{self.name}{_labels(self._labels, key)} {float(value)!r}" for key, value in self._read().items()]


class Histogram:
    """A histogram for each combination of label values. Thread-safe."""

    kind = "histogram"

    def __init__(self, name: str, help: str, bounds: Sequence[float], *labels: str):
        self.name, self.help = name, help
        self._bounds, self._labels = tuple(bounds), labels
        self._lock = threading.Lock()
        self._counts: dict[tuple[str, ...], list[int]] = {}  # by bucket, the last one without bound
        self._sums: dict[tuple[str, ...], float] = {}

    def observe(self, value: float, *values: str) -> None:
        with self._lock:
            counts = self._counts.setdefault(values, [0] * (len(self._bounds) + 1))
            counts[bisect.bisect_left(self._bounds, value)] += 1
            self._sums[values] = self._sums.get(values, 0.0) + value

    def lines(self) -> list[str]:
        with self._lock:
            rows = [(values, list(counts), self._sums[values]) for values, counts in sorted(self._counts.items())]
        lines = []
        for values, counts, total in rows:
            below = 0
            for bound, count in zip([*map(repr, self._bounds), "+Inf"], counts):
                below += count
                labels = _labels((*self._labels, "le"), (*values, bound))
                lines.append(f"{self.name}_bucket{labels} {below}")
            labels = _labels(self._labels, values)
            lines += [f"{self.name}_sum{labels} {total!r}", f"{self.name}_count{labels} {below}"]
        return lines


def text_of(metrics: Sequence[Any]) -> str:
    """The metrics in Prometheus' text format."""
    lines = []
    for metric in metrics:
        lines += [f"# HELP {metric.name} {metric.help}", f"# TYPE {metric.name} {metric.kind}", *metric.lines()]
    return "\n".join(lines) + "\n"


class ProbeServer:
    """Serves /healthz, /readyz (503 while `unready` returns a reason) and /metrics in plaintext, in a thread.

    address: HOST:PORT; port 0 chooses a free port. Raises OSError or ValueError if it is no address that
    can be listened on. A context manager.
    """

    def __init__(self, address: str, metrics: Sequence[Any], unready: Callable[[], str] = lambda: ""):
        class Probes(Handler):
            timeout = 5.0  # of each read and write

            def do_GET(self) -> None:
                path = self.path.split("?", 1)[0]
                code, body = {
                    "/healthz": lambda: (200, "ok\n"),
                    "/readyz": lambda: (503, f"{why}\n") if (why := unready()) else (200, "ok\n"),
                    "/metrics": lambda: (200, text_of(metrics)),
                }.get(path, lambda: (404, "not found\n"))()
                self.answer(code, "text/plain; version=0.0.4; charset=utf-8", body.encode())

            do_HEAD = do_GET

        self._server = Listener(address, Probes)
        self.address = self._server.address
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def __enter__(self) -> ProbeServer:
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
