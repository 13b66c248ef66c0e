"""Writes a checkpoint streamed by a cluster into a folder."""

from __future__ import annotations

import hashlib
import json
import os
import pathlib
import shutil
from collections.abc import Iterable

from freshet import errors

_MANIFEST = "manifest.json"
_MOST_FILES = 10_000
_MOST_MANIFEST_BYTES = 16 << 20


def write_checkpoint(chunks: Iterable, folder: pathlib.Path) -> None:
    """Creates `folder` from freshet.job.v1.FileChunk messages.

    Writes to a temporary folder beside it, checks the files against the checkpoint's manifest and
    renames it, so `folder` is complete if it exists. Leaves nothing behind on failure. Raises
    FileExistsError, OSError, and FreshetError if the files do not match the manifest.
    """
    if os.path.lexists(folder):
        raise FileExistsError(f"{folder} already exists; choose a new folder")
    temporary = folder.with_name(f"{folder.name}.tmp-{os.getpid()}")
    temporary.mkdir(parents=True)
    try:
        _check(temporary, _receive(chunks, temporary))
        os.rename(temporary, folder)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


def _receive(chunks: Iterable, folder: pathlib.Path) -> dict[str, tuple[int, str]]:
    """Writes the files and returns (size, SHA-256) by file name."""
    found: dict[str, tuple[int, str]] = {}
    name, file, size, digest = "", None, 0, hashlib.sha256()

    def close() -> None:
        if file is not None:
            file.flush()
            os.fsync(file.fileno())
            file.close()
            found[name] = (size, digest.hexdigest())

    try:
        for chunk in chunks:
            if chunk.path:
                close()
                file = None
                name, size, digest = _safe(chunk.path), 0, hashlib.sha256()
                if name in found or len(found) >= _MOST_FILES:
                    raise errors.FreshetError(f"the server sent {name} twice, or too many files")
                path = folder / name
                path.parent.mkdir(parents=True, exist_ok=True)
                file = open(path, "wb")  # noqa: SIM115
            if file is None:
                raise errors.FreshetError("the server sent data without a file name")
            file.write(chunk.data)
            digest.update(chunk.data)
            size += len(chunk.data)
        close()
    finally:
        if file is not None and not file.closed:
            file.close()
    return found


def _safe(name: str) -> str:
    parts = name.split("/")
    if len(name) > 1024 or "\0" in name or any(part in ("", ".", "..") for part in parts):
        raise errors.FreshetError(
            f"the server sent a file that does not belong into the folder: {name[:80]!r}"
        )
    return name


def _check(folder: pathlib.Path, found: dict[str, tuple[int, str]]) -> None:
    if _MANIFEST not in found or found[_MANIFEST][0] > _MOST_MANIFEST_BYTES:
        raise errors.FreshetError(f"the received checkpoint has no {_MANIFEST}")
    try:
        manifest = json.loads((folder / _MANIFEST).read_text(encoding="utf-8"))
        promised = {file["name"]: (file["bytes"], file["sha256"]) for file in manifest["files"]}
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise errors.FreshetError(f"{_MANIFEST}: cannot be read: {error!r}") from None
    for name, what in promised.items():
        if found.get(name) != what:
            raise errors.FreshetError(
                f"{name}: the received file does not match the manifest; try again"
            )
