"""Job files as a client sends them."""

from __future__ import annotations

import json
import os
import pathlib
import re
from collections.abc import Mapping
from typing import Any

import yaml

# Keys of a job file that name files.
_FILE_BLOCKS = ("model", "tokenizer", "dataset")
_FILE_KEYS = ("path", "eval_path")
_PATH_KEY = re.compile(r"(model|tokenizer|dataset)\.path|dataset\.eval_path|eval\.sets\.\d+\.path")


def read_job(job: str | os.PathLike) -> tuple[str, str]:
    """Returns text and name of a job file, which is given as its path or as YAML text with a line break."""
    if isinstance(job, str) and "\n" in job:
        return job, "job.yaml"
    return pathlib.Path(job).read_text(encoding="utf-8"), os.fspath(job)


def override_list(values: Mapping[str, Any] | None) -> list[str]:
    """Formats overrides as for --set."""
    return [f"{key}={_scalar(value)}" for key, value in (values or {}).items()]


def absolute_paths(text: str, overrides: list[str]) -> list[str]:
    """Returns overrides that make the relative paths of files that exist absolute."""
    given = dict(entry.split("=", 1) for entry in overrides)
    result = []
    for key, path in {**_paths_in(text), **given}.items():
        if _PATH_KEY.fullmatch(key) and path and not path.startswith("/") and os.path.exists(path):
            result.append(f"{key}={os.path.abspath(path)}")
    return result


def _scalar(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (dict, list, tuple)):
        return json.dumps(value)
    return str(value)


def _paths_in(text: str) -> dict[str, str]:
    """Returns the paths of files in a job file, by key."""
    try:
        job = yaml.safe_load(text)
    except yaml.YAMLError:
        return {}  # the server reports the fault
    job = job if isinstance(job, dict) else {}
    found = {f"{block}.{key}": _get(job.get(block), key) for block in _FILE_BLOCKS for key in _FILE_KEYS}
    sets = _get(job.get("eval"), "sets")
    for index, one in enumerate(sets if isinstance(sets, list) else []):
        found[f"eval.sets.{index}.path"] = _get(one, "path")
    return {key: path for key, path in found.items() if isinstance(path, str)}


def _get(block: Any, key: str) -> Any:
    return block.get(key) if isinstance(block, dict) else None
