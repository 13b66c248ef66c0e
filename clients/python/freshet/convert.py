"""Converts Parquet files to the JSON Lines that a job's `dataset` of type jsonl reads.

    python3 -m freshet.convert SOURCE OUT [--columns A,B] [--prefix NAME] [--limit ROWS] [--force]

`freshet data convert` runs this module, with the same arguments. Reads with pyarrow.

    null                          absent at the top level, null inside lists and structs
    boolean, integer, text        the same
    float                         a number; NaN and infinities are errors
    list, struct                  array, object
    map with texts as keys        object
    date, time, timestamp         text, ISO 8601
    decimal                       text, so that no digit is lost
    other types (binary, ...)     an error that names the column
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import json
import math
import os
import pathlib
import re
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from freshet import command

PACKAGES = "pyarrow"

_BATCH_ROWS = 256
_READ_BYTES = 1 << 20
_SHARD = re.compile(r"(.+)-\d+-of-\d+\.parquet")

Converter = Callable[[Any], Any]


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command and returns its exit code."""
    options = _options(arguments)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        importlib.import_module("pyarrow.parquet")
        rows, files = convert(
            options.source,
            options.out,
            columns=options.columns,
            prefix=options.prefix,
            limit=options.limit,
            force=options.force,
        )
    except KeyboardInterrupt:
        return command.INTERRUPTED
    except ModuleNotFoundError as fault:
        return command.missing_package(fault, PACKAGES)
    except (OSError, ValueError) as fault:
        return command.fail(fault, command.CONTENT)
    print(options.out)
    command.say(f"{rows} {'row' if rows == 1 else 'rows'} from {files} {'file' if files == 1 else 'files'}")
    return 0


def convert(
    source: str,
    out: str,
    columns: Sequence[str] = (),
    prefix: str = "",
    limit: int | None = None,
    force: bool = False,
) -> tuple[int, int]:
    """Writes the rows of a Parquet file, or of all in a folder in the order of their names.

    `columns` selects and orders columns; without it all are written. `prefix`: of the names of a
    folder's files. Rows are streamed, and `out` is complete if it exists; without `force` it is not
    replaced. Returns the numbers of rows and files. Raises OSError, and ValueError that names the file,
    column and row.
    """
    files = _files(source, prefix)
    if os.path.lexists(out) and not force:
        raise ValueError(f"{out}: exists already; name a new file, or replace it with --force")
    for path in files:  # before hours of work
        with _open(path) as file:
            _converters(path, file.schema_arrow, columns)
    temporary = f"{out}.tmp-{os.getpid()}"
    rows = 0
    try:
        with open(temporary, "w", encoding="utf-8", newline="\n") as target:
            for line in _lines(files, columns):
                if rows == limit:
                    break
                target.write(line)
                rows += 1
            target.flush()
            os.fsync(target.fileno())
        if rows == 0:
            raise ValueError(f"{source}: has no rows")
        os.replace(temporary, out)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
    return rows, len(files)


def _files(source: str, prefix: str) -> list[str]:
    if not os.path.isdir(source):
        return [source]
    names = sorted(name for name in os.listdir(source) if name.endswith(".parquet"))
    chosen = [name for name in names if name.startswith(prefix)]
    if not chosen:
        wanted = f"{prefix}*.parquet" if prefix else "*.parquet"
        raise ValueError(f"{source}: there is no {wanted} in this folder")
    sets = {match[1] for name in chosen if (match := _SHARD.fullmatch(name))}
    if len(sets) > 1:
        raise ValueError(
            f"{source}: holds shards of {', '.join(sorted(sets))}; choose with --prefix {min(sets)}-"
        )
    return [os.path.join(source, name) for name in chosen]


@contextlib.contextmanager
def _open(path: str) -> Iterator[Any]:
    """A ParquetFile. While it is open, faults of pyarrow become a ValueError that names `path`."""
    import pyarrow
    import pyarrow.parquet

    with open(path, "rb") as file:
        try:
            # pre_buffer would read whole row groups.
            yield pyarrow.parquet.ParquetFile(file, buffer_size=_READ_BYTES, pre_buffer=False)
        except (pyarrow.ArrowException, OSError) as fault:
            if isinstance(fault, OSError) and fault.filename:
                raise
            raise ValueError(f"{path}: {fault}") from None


def _lines(files: Sequence[str], columns: Sequence[str]) -> Iterator[str]:
    for path in files:
        with _open(path) as file:
            converters = _converters(path, file.schema_arrow, columns)
            number = 0
            for batch in file.iter_batches(_BATCH_ROWS, columns=list(converters)):
                values = {
                    name: _values(f"{path}: column {name}", batch.column(name), number, converter)
                    for name, converter in converters.items()
                }
                for i in range(batch.num_rows):
                    row = {name: column[i] for name, column in values.items() if column[i] is not None}
                    yield json.dumps(row, ensure_ascii=False, allow_nan=False) + "\n"
                number += batch.num_rows


def _values(where: str, column: Any, first_row: int, converter: Converter) -> list:
    values = []
    for i in range(len(column)):
        try:
            values.append(converter(column[i].as_py()))
        except (ValueError, OverflowError) as fault:
            raise ValueError(f"{where}, row {first_row + i + 1}: {fault}") from None
    return values


def _converters(path: str, schema: Any, columns: Sequence[str]) -> dict[str, Converter]:
    """By column, in the order of the output."""
    names = list(columns or schema.names)
    for name in names:
        if name not in schema.names:
            raise ValueError(f"{path}: has no column {name}; it has {', '.join(schema.names)}")
        if schema.names.count(name) > 1:
            raise ValueError(f"{path}: has several columns {name}; rename them")
    return {name: _converter(schema.field(name).type, f"{path}: column {name}") for name in names}


def _converter(kind: Any, where: str) -> Converter:
    import pyarrow.types as types

    if types.is_dictionary(kind):
        return _converter(kind.value_type, where)
    plain = (types.is_null, types.is_boolean, types.is_integer, types.is_string, types.is_large_string)
    if any(is_kind(kind) for is_kind in plain):
        return _same
    if types.is_floating(kind):
        return _optional(_number)
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        item = _converter(kind.value_type, f"{where}[]")
        return _optional(lambda values: [item(value) for value in values])
    if types.is_struct(kind):
        fields = [kind.field(i) for i in range(kind.num_fields)]
        parts = {field.name: _converter(field.type, f"{where}.{field.name}") for field in fields}
        return _optional(lambda value: {name: part(value[name]) for name, part in parts.items()})
    if types.is_map(kind) and (types.is_string(kind.key_type) or types.is_large_string(kind.key_type)):
        item = _converter(kind.item_type, f"{where}{{}}")
        return _optional(lambda pairs: {key: item(value) for key, value in pairs})
    if types.is_date(kind) or types.is_time(kind) or types.is_timestamp(kind):
        return _optional(lambda value: value.isoformat())
    if types.is_decimal(kind):
        return _optional(str)
    raise ValueError(
        f"{where}: is of type {kind}, which JSON does not have; name the other columns with --columns"
    )


def _same(value: Any) -> Any:
    return value


def _optional(converter: Converter) -> Converter:
    return lambda value: None if value is None else converter(value)


def _number(value: Any) -> float:
    if not math.isfinite(value):
        raise ValueError(f"{value} is not a JSON number; name the other columns with --columns")
    return float(value)


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="freshet data convert")
    parser.add_argument("source", metavar="SOURCE", help="Parquet file, or folder of them")
    parser.add_argument("out", metavar="OUT", help="JSON Lines file to write")
    parser.add_argument("--columns", default=[], type=_names, help="columns to write, separated by commas")
    parser.add_argument("--prefix", default="", help="start of the names of the folder's files to read")
    parser.add_argument("--limit", type=_positive, help="number of rows to write")
    parser.add_argument("--force", action="store_true", help="replace OUT")
    options = parser.parse_intermixed_args(arguments)
    if options.prefix and not pathlib.Path(options.source).is_dir():
        parser.error(f"--prefix: {options.source} is not a folder")
    return options


def _names(text: str) -> list[str]:
    names = text.split(",")
    if not all(names) or len(set(names)) < len(names):
        raise argparse.ArgumentTypeError(f"{text!r} is not a list of different names")
    return names


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0")
    return int(text)


if __name__ == "__main__":
    sys.exit(main())
