"""Rows of metrics.jsonl: parsing, curves, and the rows that survive resumes."""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
from collections.abc import Iterator, Mapping
from typing import Any

_MAX_ROW_BYTES = 1 << 20
_MAX_FLOAT32 = (2 - 2**-23) * 2.0**127
_MAX_INT64 = 2**63 - 1
# Longer than any run, yet trackers can still convert the time to a date.
_MAX_SECONDS = 1e10


@dataclasses.dataclass(frozen=True)
class Point:
    """One row of metrics.jsonl: a training step or an evaluation of a policy version."""

    step: int  # training step, or evaluated version
    eval_name: str | None  # None: a training step
    lineage: int
    seconds: float  # since the start of the run
    # By curve: "train/KEY", "staleness_tokens/AGE", "reward/COMPONENT", "eval/NAME/KEY",
    # "eval/NAME/reward/COMPONENT". Omits NaN, infinities and values out of the float32 range.
    values: dict[str, float]

    @property
    def key(self) -> tuple[int, bool, str]:
        """Identity and sort key. A step sorts before the evaluations of the version it publishes."""
        return self.step, self.eval_name is not None, self.eval_name or ""


def point_of(row: Any) -> Point | None:
    """Returns the point of a parsed row, or None if it is neither a step nor an evaluation.

    Raises ValueError with the key if a value has the wrong type.
    """
    if not isinstance(row, dict):
        raise ValueError("not a JSON object")
    if "step" in row:
        return _point(row, "step", None, "train", "")
    if "eval_name" not in row:
        return None
    name = row["eval_name"]
    if not isinstance(name, str):
        raise ValueError("eval_name: value of a wrong type")
    return _point(row, "policy_version", name, f"eval/{name}", f"eval/{name}/")


def _point(row: Mapping[str, Any], step: str, eval_name: str | None, group: str, inner: str) -> Point:
    values = _numbers(group, {k: v for k, v in row.items() if k not in ("step", "policy_version")})
    for key, value in row.items():
        if isinstance(value, dict):
            values.update(_numbers(inner + ("reward" if key == "reward_components" else key), value))
    return Point(_integer(row, step), eval_name, _integer(row, "lineage"), _seconds(row), values)


def _numbers(group: str, row: Mapping[str, Any]) -> dict[str, float]:
    # JSON strings may contain lone surrogates, which UTF-8 cannot encode.
    return {
        f"{group}/{key}".encode("utf-8", "replace").decode(): float(value)
        for key, value in row.items()
        if _is_number(value) and abs(value) <= _MAX_FLOAT32
    }


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _integer(row: Mapping[str, Any], key: str) -> int:
    value = row.get(key, 0)
    if not isinstance(value, int) or isinstance(value, bool) or abs(value) > _MAX_INT64:
        raise ValueError(f"{key}: value of a wrong type")
    return value


def _seconds(row: Mapping[str, Any]) -> float:
    value = row.get("wall_seconds", 0)
    if value is None or value != value:  # null, or NaN, to which the client converts it
        return 0.0
    if not _is_number(value) or not 0 <= value <= _MAX_SECONDS:
        raise ValueError("wall_seconds: value of a wrong type")
    return float(value)


class History:
    """The points of a run that survive its resumes.

    A resume restarts training from a checkpoint as a new lineage. From its first step on, it supersedes
    the steps and evaluations of all earlier lineages. Of several points with the same key, the last one
    of the highest lineage survives.
    """

    def __init__(self) -> None:
        self._points: dict[tuple[int, bool, str], Point] = {}
        self._first_step: dict[int, int] = {}  # by lineage

    def add(self, point: Point) -> bool:
        """Adds the next row. Returns False if it supersedes points that survived until now."""
        before = len(self._points)
        if point.eval_name is None:
            first = self._first_step.get(point.lineage, _MAX_INT64)
            if point.step < first:
                self._first_step[point.lineage] = point.step
                self._points = {
                    key: old
                    for key, old in self._points.items()
                    if old.lineage >= point.lineage or old.step < point.step
                }
        intact = len(self._points) == before
        superseded = any(
            lineage > point.lineage and first <= point.step
            for lineage, first in self._first_step.items()
        )
        old = self._points.get(point.key)
        if superseded or (old is not None and old.lineage > point.lineage):
            return intact
        self._points[point.key] = point
        return intact and old is None

    def __contains__(self, point: Point) -> bool:
        return self._points.get(point.key) is point

    def __iter__(self) -> Iterator[Point]:
        """Iterates by step; evaluations of a version follow the step that published it."""
        return (self._points[key] for key in sorted(self._points))


class MetricsFile:
    """Incrementally reads a metrics.jsonl that may still grow."""

    def __init__(self, path: str | os.PathLike):
        self._path = pathlib.Path(path)
        self._offset = 0
        self._lines = 0

    def read(self) -> list[Point]:
        """Returns the points of all complete lines since the last call.

        Raises FileNotFoundError, and ValueError with file and line of a malformed row.
        """
        points = []
        with open(self._path, "rb") as file:
            file.seek(self._offset)
            while line := file.readline(_MAX_ROW_BYTES + 1):
                place = f"{self._path}:{self._lines + 1}"
                if not line.endswith(b"\n"):
                    if len(line) <= _MAX_ROW_BYTES:
                        break
                    raise ValueError(f"{place}: line longer than the limit of {_MAX_ROW_BYTES} bytes")
                try:
                    point = point_of(_parsed(line))
                except ValueError as fault:
                    raise ValueError(f"{place}: {fault}") from None
                self._offset += len(line)
                self._lines += 1
                if point is not None:
                    points.append(point)
        return points

    def modified(self) -> float:
        """Unix time of the last write."""
        return self._path.stat().st_mtime


def _parsed(line: bytes) -> Any:
    try:
        return json.loads(line.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        raise ValueError("not JSON") from None
