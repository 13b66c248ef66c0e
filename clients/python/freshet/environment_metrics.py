"""Metrics of an environment server. They have the names of those of freshet-env."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator

from freshet.exposition import Counter, Gauge, Histogram


class EnvironmentMetrics:
    """Thread-safe. open_episodes: their number now."""

    def __init__(self, open_episodes: Callable[[], int], max_episodes: int):
        self._episodes = Counter(
            "freshet_episodes_total", "Episodes that ended, by environment and how.", "environment", "outcome"
        )
        self._turns = Histogram(
            "freshet_episode_turns",
            "Turns of the policy in episodes that ended.",
            (1, 2, 3, 4, 6, 8, 12, 16, 32),
            "environment",
        )
        self._seconds = Histogram(
            "freshet_environment_step_seconds",
            "Time that an environment took for one reset or step.",
            (0.001, 0.01, 0.1, 1, 10, 60),
            "environment",
        )
        self._hung = Counter(
            "freshet_environment_hung_calls_total",
            "Calls of environments that went on long after their caller had given up.",
            "environment",
        )
        self.shown = [
            self._episodes,
            self._hung,
            self._turns,
            self._seconds,
            Gauge("freshet_episodes_open", "Open episodes.", lambda: {(): open_episodes()}),
            Gauge("freshet_queue_entries", "Entries of a bounded queue now.",
                  lambda: {("episodes",): open_episodes()}, "queue"),
            Gauge("freshet_queue_bound_entries", "Capacity of a bounded queue; further entries are refused.",
                  lambda: {("episodes",): max_episodes}, "queue"),
        ]

    @contextlib.contextmanager
    def step(self, environment: str) -> Iterator[None]:
        """Measures one reset or step."""
        start = time.monotonic()
        try:
            yield
        finally:
            self._seconds.observe(time.monotonic() - start, environment)

    def ended(self, environment: str, outcome: str, turns: int) -> None:
        """outcome: terminated, truncated, abandoned (by the caller) or failed."""
        self._episodes.add(environment, outcome)
        self._turns.observe(turns, environment)

    def hung(self, environment: str) -> None:
        self._hung.add(environment)
