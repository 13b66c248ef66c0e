"""Reads the rows of a ledger."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

MOST_COUNT = 1 << 60


class BadRow(ValueError):
    """A row that cannot be read."""


def count(row: Mapping[str, Any], key: str, default: int | None = None) -> int:
    value = row.get(key, default)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= MOST_COUNT:
        raise BadRow(f'key "{key}" is no count')
    return value


def text(row: Mapping[str, Any], key: str, default: str | None = None) -> str:
    value = row.get(key, default)
    if not isinstance(value, str):
        raise BadRow(f'key "{key}" is no text')
    return value


def checked_sample(row: Mapping[str, Any]) -> dict[str, Any]:
    """The keys of a row about a sample. Raises BadRow."""
    result: dict[str, Any] = {"uid": text(row, "uid"), "redo": row.get("redo", False)}
    if not isinstance(result["redo"], bool):
        raise BadRow('key "redo" is not true or false')
    result["reason"] = text(row, "reason", "")
    for key in ("seq", "epoch", "lineage", "step", "train_version", "prompt", "attempt", "sample",
                "loss_tokens", "masked_tokens", "min_version", "max_version"):
        result[key] = count(row, key)
    spans = row.get("spans")
    if not isinstance(spans, list) or not all(isinstance(span, Mapping) for span in spans):
        raise BadRow('key "spans" is not a list of objects')
    result["spans"] = [
        {key: count(span, key) for key in ("lineage", "version", "begin", "end")} for span in spans
    ]
    return result
